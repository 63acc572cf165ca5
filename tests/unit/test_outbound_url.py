"""URLs that somebody else wrote: one form, and a reason for every other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailroom.outbound_url import MAX_URL, OutboundUrl, UrlRefused


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://hooks.example.com/in?a=b&c=%2F", "https://hooks.example.com/in?a=b&c=%2F"),
        ("HTTPS://Hooks.Example.COM", "https://hooks.example.com/"),
        ("https://hooks.example.com:443/In", "https://hooks.example.com/In"),
        ("https://hooks.example.com?a=1", "https://hooks.example.com/?a=1"),
        ("https://hooks.example.com:8443/", "https://hooks.example.com:8443/"),
        ("https://hooks.example.com:1024/", "https://hooks.example.com:1024/"),
        ("https://hooks.example.com:65535/", "https://hooks.example.com:65535/"),
        ("http://127.0.0.1:80/", "http://127.0.0.1/"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("https://8.8.8.8/", "https://8.8.8.8/"),
        ("https://[2606:4700:4700:0::1111]:8443/a", "https://[2606:4700:4700::1111]:8443/a"),
        ("https://1.example/", "https://1.example/"),
        ("https://a.example/@home:1", "https://a.example/@home:1"),
        ("https://a.example/" + "a" * (MAX_URL - 18), "https://a.example/" + "a" * (MAX_URL - 18)),
    ],
)
def test_a_url_is_read_into_its_normal_form(url: str, normal: str) -> None:
    assert str(OutboundUrl.parse(url)) == normal
    assert str(OutboundUrl.parse(normal)) == normal


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "https://host/path"),
        ("hooks.example.com/in", "https://host/path"),
        ("//hooks.example.com", "https://host/path"),
        ("https:/hooks.example.com", "https://host/path"),
        ("ftp://hooks.example.com", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("gopher://hooks.example.com:25/", "scheme"),
        ("javascript://hooks.example.com/%0aalert(1)", "scheme"),
        ("https://user@hooks.example.com", "user or password"),
        ("https://user:password@hooks.example.com", "user or password"),
        ("https://hooks.example.com@10.0.0.1/", "user or password"),
        ("https://hooks.example.com#@10.0.0.1/", "fragment"),
        ("https://hooks.example.com/in#top", "fragment"),
        ("https://hooks.example.com/in#", "fragment"),
        ("https://", "no host"),
        ("https:///in", "no host"),
        ("https://?a", "no host"),
        ("https://:8443/", "no host"),
        ("https://hooks.example.com./", "ends with a dot"),
        ("https://127.0.0.1./", "ends with a dot"),
        ("https://./", "ends with a dot"),
        ("https://hooks..example.com/", "no name"),
        ("https://-hooks.example.com/", "no name"),
        ("https://hooks_1.example.com/", "no name"),
        ("https://hooks%2eexample.com/", "no name"),
        ("https://" + "a" * 64 + ".example/", "no name"),
        ("https://" + "a." * 127 + "example/", "no name"),
        ("https://hooks.example.com:22/", "a port is 443"),
        ("https://hooks.example.com:80/", "a port is 443"),
        ("http://hooks.example.com:443/", "a port is 443"),
        ("https://hooks.example.com:0/", "a port is 443"),
        ("https://hooks.example.com:1023/", "a port is 443"),
        ("https://hooks.example.com:65536/", "a port is 443"),
        ("https://hooks.example.com:999999/", "a port is 443"),
        ("https://hooks.example.com:/", "a port is 443"),
        ("https://hooks.example.com:+443/", "a port is 443"),
        ("https://hooks.example.com:443:443/", "a port is 443"),
        ("https://2130706433/", "four decimal numbers"),
        ("https://0x7f000001/", "four decimal numbers"),
        ("https://0x7f.1/", "four decimal numbers"),
        ("https://127.1/", "four decimal numbers"),
        ("https://0177.0.0.1/", "four decimal numbers"),
        ("https://127.0.0.0x1/", "four decimal numbers"),
        ("https://127.0.0.01/", "four decimal numbers"),
        ("https://256.0.0.1/", "four decimal numbers"),
        ("https://1.2.3.4.5/", "four decimal numbers"),
        ("https://example.0x/", "four decimal numbers"),
        ("https://[::1/", "malformed"),
        ("https://[::1]x/", "malformed"),
        ("https://[]/", "no IPv6 address"),
        ("https://[127.0.0.1]/", "no IPv6 address"),
        ("https://[::g]/", "no IPv6 address"),
        ("https://[fe80::1%25eth0]/", "no IPv6 address"),
        ("https://bücher.example/", "punycode"),
        ("https://hooks.example.com/ü", "punycode"),
        ("https://hooks。example.com/", "punycode"),
        ("https://①②⑦.0.0.1/", "punycode"),
        ("https://hooks.example.com/a b", "percent-encoded"),
        (" https://hooks.example.com/", "percent-encoded"),
        ("https://hooks.example.com/\n", "percent-encoded"),
        ("https://hooks.example.com/\r\nX-Header: 1", "percent-encoded"),
        ("https://hooks.example.com/\x00", "percent-encoded"),
        ("https://hooks\t.example.com/", "percent-encoded"),
        ("https://hooks.example.com\\@10.0.0.1/", "percent-encoded"),
        ("https://hooks.example.com/{id}", "percent-encoded"),
        ("https://hooks.example.com/%zz", "percent-encoded"),
        ("https://a.example/" + "a" * (MAX_URL - 17), "2000 characters"),
    ],
)
def test_any_other_url_is_refused__with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(UrlRefused, match=reason):
        OutboundUrl.parse(url)


@given(st.text(alphabet=st.sampled_from("htps:/.@#?[]%0x1a-\\ \n:é"), max_size=40).map(lambda rest: f"https://{rest}"))
def test_whatever_is_read_has_one_host__and_its_normal_form_is_read_alike(url: str) -> None:
    try:
        read = OutboundUrl.parse(url)
    except UrlRefused:
        return
    assert OutboundUrl.parse(str(read)) == read
    assert set(read.host) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-:")


def test_what_may_be_told_of_a_url_has_no_path() -> None:
    assert OutboundUrl.parse("https://hooks.example.com:8443/secret/abc?token=1").place == "hooks.example.com:8443"
