"""The YAML of `plain_acl.yml` means what it means to Apache's brokers, or is refused."""

import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from firearrow.broker.auth import plain_yaml
from firearrow.broker.auth.plain_accounts import PlainAcl
from firearrow.broker.auth.plain_yaml import BYTES_MAX, DEPTH_MAX, VALUES_MAX, YamlError


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML with and without the C library."""
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader")
        monkeypatch.delattr(yaml, "CSafeDumper")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": "1"}),
        (
            "---\na:\n- x\n- y: z\n  w: v\nb: [p, 'q r', \"s\"]",
            {"a": ["x", {"y": "z", "w": "v"}], "b": ["p", "q r", "s"]},
        ),
        ("a: 'it''s'  # c\n# d\n\nb: x#y", {"a": "it's", "b": "x#y"}),
        ("a:\n  b:\n    c: []\nd: '*.*.*.*'", {"a": {"b": {"c": []}}, "d": "*.*.*.*"}),
        ("a: http://x:1\nb: 10.10.103.*\nc: ::1", {"a": "http://x:1", "b": "10.10.103.*", "c": "::1"}),
        ("a: null\nb:\nc: ~\nd: ''", {"a": "", "b": "", "c": "", "d": ""}),
        ("- - a\n  - b", [["a", "b"]]),
        ("{a: b, c: [d, {e: f}], g: {}, h: }", {"a": "b", "c": ["d", {"e": "f"}], "g": {}, "h": ""}),
        ("- {a: 'x, }', b: \"]\"}\n- [p, [q]]", [{"a": "x, }", "b": "]"}, ["p", ["q"]]]),
        (
            "a: {b: 1, # c\n  c: ['*',\n10.0.0.*,],\n  }\nd: e",
            {"a": {"b": "1", "c": ["*", "10.0.0.*"]}, "d": "e"},
        ),
        ('{"a":"b","c":[1,true]}', {"a": "b", "c": ["1", "true"]}),
        (
            "a: |\n  b\nc: x\n  y\nd: 'p\n  q'\ne: \"r\\ts\"",
            {"a": "b\n", "c": "x y", "d": "p q", "e": "r\ts"},
        ),
        ("? a\n: b", {"a": "b"}),
        ("a: b\u2028c: d\x85e: f", {"a": "b", "c": "d", "e": "f"}),
        ("\ufeff%YAML 1.1\n---\na: b\n...\n", {"a": "b"}),
        ("", {}),
        ("# nothing\n", {}),
    ],
)
def test_yaml(text: str, value: object) -> None:
    """The values are those of Apache's brokers 4.9.8 and 5.2 with SnakeYAML 1.30."""
    assert plain_yaml.parse(text) == value


@pytest.mark.parametrize(
    ("words", "value"),
    [("yes Yes YES on On ON true True TRUE", "true"), ("no No NO off Off OFF false", "false")],
)
def test_bools(words: str, value: str) -> None:
    for word in words.split():
        assert plain_yaml.parse(f"a: {word}") == {"a": value}
        assert plain_yaml.parse(f"a: '{word}'") == {"a": word}


@pytest.mark.parametrize("text", ["y", "N", "yEs", "tRue", "nULL"])
def test_texts_that_look_like_words(text: str) -> None:
    assert plain_yaml.parse(f"a: {text}") == {"a": text}


@pytest.mark.parametrize(
    "text",
    [
        "12345678",
        "-1234567",
        "12345678901234567890123",
        "a1_000",
        "01234567",
        "1_000_000",
        "+1234567",
        "0x1234567",
        "0b10101010",
        "12:30:45",
        "1:2:3:4:5:6:7:8",
        "1234.5678",
        "1234567.",
        ".12345678",
        "1234567e1",
        "1.5e+10",
        "-.inf",
        ".NaN",
        "2024-01-01",
        "2024-1-1T10:20:30Z",
        "1:30.5",
        "=",
    ],
)
def test_numbers_and_times_are_texts(text: str) -> None:
    """As for Apache's brokers from 5.0 on, also in keys; those up to 4.9 make a number of it first."""
    assert plain_yaml.parse(f"secretKey: {text}\n{text}: x") == {"secretKey": text, text: "x"}
    assert plain_yaml.parse(plain_yaml.dump({"a": text})) == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: *", {"a": "*"}),
        ("a: *.*.*.*  # all\nb: '*'", {"a": "*.*.*.*", "b": "*"}),
        ("- *\n- *.*.*.*\n- 10.0.0.*", ["*", "*.*.*.*", "10.0.0.*"]),
        ("a: {b: [*,\n10.0.0.*,*.*], c: *}", {"a": {"b": ["*", "10.0.0.*", "*.*"], "c": "*"}}),
        ("a: *:*:*:*:*:*:*:*\nb: '- *'", {"a": "*:*:*:*:*:*:*:*", "b": "- *"}),
    ],
)
def test_addresses_of_all_hosts_need_no_quotes(text: str, value: object) -> None:
    """Apache's brokers do not start with such a file."""
    assert plain_yaml.parse(text) == value


BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}]\n" for old, new in ("ab", "bc", "cd", "de")
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: &x 1", "line 1 has an anchor"),
        ("a: b\nc: *x", "line 2 has an anchor, an alias"),
        ("a: * b", "line 1 is not YAML"),
        ("a: **x", "line 1 is not YAML"),
        ("a: *\nb: *c", "line 2 has an anchor, an alias"),
        ("a: !t b", "a tag"),
        ("a: !!python/object/apply:os.system [id]", "a tag"),
        ("a: !!int '7'", "a tag"),
        (BOMB, "line 1 has an anchor"),
        ("a: {<<: {b: c}}", "line 1 merges a mapping"),
        ("a: <<", "line 1 merges a mapping"),
        ("a: {b: c", "is not YAML"),
        ("a: {b: c, b: d}", "line 1 has b for the second time"),
        ("a: 1\nb: 2\na: 2", "line 3 has a for the second time"),
        ("a: 1\n'a': 2", "line 2 has a for the second time"),
        ("a: {b: c} d", "is not YAML"),
        ("a: {b: c}}", "is not YAML"),
        ("a: [b,, c]", "is not YAML"),
        ("a: [- b]", "is not YAML"),
        ("a: ]", "is not YAML"),
        ("{a: b}: c", "a key that is not a text"),
        ("? [a]\n: c", "a key that is not a text"),
        ("a: " + "[" * (DEPTH_MAX + 2) + "]" * (DEPTH_MAX + 2), f"deeper than {DEPTH_MAX} levels"),
        ("[" * 100_000, "line 1 "),
        ("\n".join(" " * n + "a:" for n in range(DEPTH_MAX + 3)), f"deeper than {DEPTH_MAX} levels"),
        ("a: [b", "is not YAML"),
        ("a: 'b", "is not YAML"),
        ("a: 1\n   b: 2", "line 2 is not YAML"),
        ("a:\n\tb: 1", "is not YAML"),
        ("a:\n    b: 1\n  c: 2", "is not YAML"),
        ("a: b\n--- c", "starts a second document"),
        ("a: b\n...\nc: d", ""),
        ("a: \x00", ""),
        ('a: "\\uD800"', ""),
        ('a: "\\UFFFFFFFF"', ""),
        ("#" * (BYTES_MAX + 1), f"at most {BYTES_MAX}"),
    ],
)
def test_other_yaml_is_refused(text: str, fault: str) -> None:
    with pytest.raises(YamlError) as caught:
        plain_yaml.parse(text)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert VALUES_MAX > 10 * 2 * 10_000  # accounts of all fields
    monkeypatch.setattr(plain_yaml, "VALUES_MAX", 100)
    assert plain_yaml.parse("[" + "a," * 99 + "]") == ["a"] * 99
    with pytest.raises(YamlError, match="more than 100 values"):
        plain_yaml.parse("[" + "a," * 100 + "]")


@pytest.mark.parametrize(
    ("account", "fault"),
    [
        ("admin: maybe", "admin must be true or false"),
        ("admin: 'yes'", "admin must be true or false"),
        ("admin: 1", "admin must be true or false"),
        ("Admin: true", "Admin must be written admin"),
        ("topic_perms: [a=DENY]", "topic_perms must be written topicPerms"),
        ("DefaultTopicPerm: DENY", "DefaultTopicPerm must be written defaultTopicPerm"),
        ("secretKey: [a, b, c, d]", "secretKey must be a text, not a list"),
        ("defaultTopicPerm: {a: b}", "defaultTopicPerm must be a text, not a mapping"),
        ("topicPerms: [[a=PUB]]", "a permission must be a text, not a list"),
        ("topicPerms: [{a=PUB: }]", "a permission must be a text, not a mapping"),
        ("topicPerms: [a=PUB, ]\n  groupPerms: [~]", "must be NAME=PUB"),
    ],
)
def test_fields_of_another_kind_are_refused(account: str, fault: str) -> None:
    secret = "" if "secretKey" in account else "\n  secretKey: '12345678'"
    with pytest.raises(ValueError, match=fault):
        PlainAcl.parse(f"accounts:\n- accessKey: keykey00{secret}\n  {account}\n")


@pytest.mark.parametrize(
    "text", ["globalWhiteRemoteAddresses: [[10.0.0.1]]", "globalWhiteRemoteAddresses: '*'"]
)
def test_addresses_of_another_kind_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a text|is not a list"):
        PlainAcl.parse(text)


@given(st.text(alphabet=" abc:-#'\"[]{},\n\t&*=|1.\\uU!%?>~\x85\ufeff", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        PlainAcl.parse(text)
    except ValueError:
        pass


@given(
    st.dictionaries(
        st.sampled_from(["a", "b c", "true", "1", "1e5", "="]),
        st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=9)
        | st.lists(
            st.sampled_from(
                [
                    "a=PUB|SUB",
                    "*",
                    "10.0.0.*",
                    "'",
                    "x: y",
                    "# no",
                    "",
                    "{a",
                    "[b]",
                    "1e5",
                    "012",
                    "0o17",
                    "<<",
                    "1:2",
                ]
            ),
            min_size=1,
        )
        | st.lists(
            st.dictionaries(
                st.sampled_from(["k", "l"]), st.sampled_from(["v", "null", "0", "- x"]), min_size=1
            )
        ),
        min_size=1,
    )
)
def test_what_is_dumped_is_parsed(document: dict[str, object]) -> None:
    assert plain_yaml.parse(plain_yaml.dump(document)) == document


def test_texts_keep_their_type_in_other_yaml() -> None:
    """What a reader of YAML could take for a number, a bool or null is in quotes."""
    given = {"secretKey": "01234567", "x": "no", "y": "1e5", "z": "~", "b": True, "n": 7}
    assert plain_yaml.dump(given) == "secretKey: '01234567'\nx: 'no'\ny: '1e5'\nz: '~'\nb: true\nn: 7\n"
    with pytest.raises(ValueError, match="cannot be printed"):
        plain_yaml.dump({"a": "b\nadmin: true"})


def test_without_the_package_one_sentence_stops_the_start() -> None:
    program = """
import sys
sys.modules["yaml"] = None
from pathlib import Path
from firearrow.broker.auth.plain_files import PlainFiles
PlainFiles(Path(sys.argv[1]), None).load()
"""
    command = [sys.executable, "-c", program, __file__]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    wanted = "StartError: plain_acl.yml needs the package PyYAML: pip install 'firearrow[acl]'"
    assert ran.stderr.splitlines()[-1] == f"firearrow.broker.base.errors.{wanted}"
