"""Where a local stack keeps what it makes, and where the tools lie that make installed."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
NODE = BUILD / "node" / "node"
CDK = BUILD / "cdk" / "node_modules" / "aws-cdk" / "bin" / "cdk"
EMULATOR = BUILD / "emulator" / "bin" / "ministack"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder of one local stack; stacks in two folders run side by side."""

    folder: Path

    @property
    def lock(self) -> Path:
        """Held by the emulator for as long as it lives; says its pid and port."""
        return self.folder / "emulator.lock"

    @property
    def emulator_log(self) -> Path:
        """What the emulator wrote."""
        return self.folder / "emulator.log"

    @property
    def function_log(self) -> Path:
        """What the functions logged, written when a run failed."""
        return self.folder / "functions.log"

    def cdk_log(self, name: str) -> Path:
        """What a subcommand of the CDK command wrote, such as `deploy`."""
        return self.folder / f"{name}.log"

    @property
    def temporary(self) -> Path:
        """The emulator's TMPDIR: it unpacks every function and layer there."""
        return self.folder / "tmp"

    @property
    def assembly(self) -> Path:
        """The synthesized templates and assets."""
        return self.folder / "cdk.out"

    @property
    def outputs(self) -> Path:
        """The stack outputs as the CDK command wrote them."""
        return self.folder / "outputs.json"

    @property
    def description(self) -> Path:
        """The deployed stack in JSON, for tests and the command line: `build/local.json`."""
        return self.folder.with_suffix(".json")


LOCAL = Workspace(BUILD / "local")
E2E = Workspace(BUILD / "e2e")
