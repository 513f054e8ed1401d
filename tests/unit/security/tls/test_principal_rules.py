import pytest

from headrace.model.errors import SettingsError
from headrace.security.tls.principal_rules import PrincipalRules

DN = "CN=Alice,OU=ServiceUsers,O=Example,C=NO"


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        # The examples of Kafka's documentation.
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=serviceuser,OU=ServiceUsers,O=Unknown,C=Unknown", "serviceuser"),
        (
            "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
            "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
            "adminuser@admin",
        ),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "C=x,CN=Some.One,O=y", "some.one"),
        ("", DN, DN),
        ("DEFAULT", DN, DN),
        ("RULE:^CN=(.*?),.*$/$1/U", DN, "ALICE"),
        ("RULE:^CN=(.*?),.*$/$1/L", DN, "alice"),
        # The first that matches decides.
        ("RULE:^CN=Bob,.*$/bob/,RULE:^CN=(.*?),.*$/$1/,DEFAULT", DN, "Alice"),
        ("RULE:^CN=Bob,.*$/bob/, DEFAULT", DN, DN),
        ("DEFAULT,RULE:.*/all/", DN, DN),
        ("RULE:^CN=Bob,.*$/bob/", DN, None),
        # The whole name must match.
        ("RULE:CN=Alice/alice/", DN, None),
        ("RULE:.*/everyone/", DN, "everyone"),
        ("RULE:.*//", DN, None),
        # Slashes, dollar signs, more digits than groups, groups that did not take part.
        (r"RULE:^CN=(.*)\/(.*)$/$1\/$2/", "CN=kafka/host1", "kafka/host1"),
        (r"RULE:.*/a\$1/", DN, "a$1"),
        ("RULE:^CN=(.*?),.*$/$12/", DN, "Alice2"),
        ("RULE:^CN=(Bob)?.*$/<$1>/", DN, "<>"),
        ("RULE:^(.*)$/$0/", "CN=a", "CN=a"),
        ("RULE:^CN=(.*?),OU=\\w+, O.*$/$1/", "CN=a,OU=b, O=c", "a"),
    ],
)
def test_rules(rules, name, user):
    assert PrincipalRules(rules).user_name(name) == user


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("nonsense", "a rule is DEFAULT or RULE:pattern/replacement/"),
        ("RULE:a/b", "a rule is DEFAULT or RULE:pattern/replacement/"),
        ("RULE:a/b/X", "'X' follows where a comma must separate"),
        ("RULE:a/b/L DEFAULT", "'DEFAULT' follows where a comma must separate"),
        ("DEFAULTS", "'S' follows"),
        ("DEFAULT,,DEFAULT", "a rule is DEFAULT or"),
        ("RULE:(/x/", "the pattern is not valid: missing )"),
        ("RULE:(?=a)b/c/", "the pattern is not valid: invalid perl operator"),
        (r"RULE:(a)\1/c/", "the pattern is not valid: invalid escape sequence"),
        ("RULE:a/$1/", "refers to $1, and the pattern has 0 groups"),
        ("RULE:(a)/$x/", "must be followed by the number of a group"),
        ("RULE:(a)/$/", "must be followed by the number of a group"),
    ],
)
def test_rules_that_are_not_valid(rules, words):
    with pytest.raises(SettingsError) as raised:
        PrincipalRules(rules)
    assert words in str(raised.value)
    assert "tls.principal.mapping.rules" in str(raised.value)


def test_a_hostile_pattern_takes_linear_time():
    """Backtracking would try 2^50 ways."""
    assert PrincipalRules("RULE:^(a+)+$/$1/").user_name("a" * 50 + "b") is None
