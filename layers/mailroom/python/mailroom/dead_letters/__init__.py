"""What could not be done, wherever it lies: seen in one view, mended, sent again or given up for good."""
