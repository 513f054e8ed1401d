"""Kafka's tools over TLS, with each way to log in, against a broker whose ACLs decide; users and ACLs by its tools."""

from collections.abc import Mapping
from pathlib import Path

from apache import Java
from report import Report, expect
from secured_broker import ADMIN, SecuredAddresses
from tests.interop.oidc import OidcProvider, running_oidc_provider
from tools import Tools

from headrace.testing.process import BrokerProcess

_TOOLS = "org.apache.kafka.tools"
_ACLS, _CONFIGS = f"{_TOOLS}.AclCommand", "kafka.admin.ConfigCommand"
_MODULES = "org.apache.kafka.common.security"
_PASSWORD = "correct horse"
_SECRET = "battery staple"
_TOPIC = "secured"
_DENIED = "TopicAuthorizationException"


class SecureTools:
    """The tools with the credentials of each user in a file."""

    def __init__(self, java: Java, addresses: SecuredAddresses, provider: OidcProvider, scratch: Path) -> None:
        self._java = java.with_options(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.token_url}")
        self._addresses = addresses
        self._provider = provider
        self._scratch = scratch
        self.admin = Tools(self._java, f"127.0.0.1:{addresses.sasl_tls}")
        self.admin_file = self.file("admin", self.login("SCRAM-SHA-512", ADMIN, ADMIN))

    def login(self, mechanism: str, user: str = "alice", password: str = _PASSWORD) -> dict[str, str]:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{_MODULES}.{module} required username="{user}" password="{password}";',
        }

    def token_login(self) -> dict[str, str]:
        module = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{module} required clientId="alice" clientSecret="{_SECRET}";',
            "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self._provider.token_url,
        }

    def certificate(self) -> dict[str, str]:
        keystore = self._addresses.certificates / "client-keystore.pem"
        return {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}

    def file(self, name: str, properties: Mapping[str, str], *, trusts: bool = True) -> str:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self._addresses.certificates / "ca.pem"}
        path = self._scratch / f"{name}.properties"
        lines = [f"{key}={value}" for key, value in {**properties, **(trust if trusts else {})}.items()]
        path.write_text("\n".join(lines))
        return str(path)

    def tools_for(self, file: str) -> Tools:
        uses_sasl = "SASL_SSL" in Path(file).read_text()
        return Tools(self._java, f"127.0.0.1:{self._addresses.sasl_tls if uses_sasl else self._addresses.tls}")

    def acls(self, *arguments: str) -> str:
        return self.admin.ok(_ACLS, "--command-config", self.admin_file, *arguments).out

    def produce(self, file: str, value: str) -> str:
        """What the tool says: it ends well even if nothing was written."""
        quick = ("--producer-property", "max.block.ms=15000")
        options = ("--topic", _TOPIC, "--producer.config", file, *quick)
        ran = self.tools_for(file).run(f"{_TOOLS}.ConsoleProducer", *options, stdin=f"{value}\n")
        return ran.out + ran.err

    def consume(self, file: str, count: int) -> list[str]:
        options = ("--topic", _TOPIC, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
        login = ("--consumer.config", file, "--group", "readers-" + Path(file).stem)
        return self.tools_for(file).ok(f"{_TOOLS}.consumer.ConsoleConsumer", *options, *login).lines


def check_security(report: Report, java: Java, scratch: Path) -> None:
    addresses = SecuredAddresses.choose(scratch / "certificates")
    with running_oidc_provider({"alice": _SECRET}) as provider:
        settings = (
            addresses.settings
            | provider.broker_settings
            | {
                "allow.everyone.if.no.acl.found": False,
                "super.users": f"User:{ADMIN};User:ANONYMOUS",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                "group.initial.rebalance.delay.ms": 0,
            }
        )
        with BrokerProcess(scratch / "secured", port=addresses.plain, settings=settings):
            addresses.create_user(ADMIN, ADMIN)
            tools = SecureTools(java, addresses, provider, scratch)
            _check_users(report, tools)
            _check_acls(report, tools)
            _check_logins(report, tools)
            _check_strangers(report, tools)


def _check_users(report: Report, tools: SecureTools) -> None:
    with report.check("ConfigCommand creates a user for SCRAM over SASL_SSL and shows it"):
        alice = ("--command-config", tools.admin_file, "--entity-type", "users", "--entity-name", "alice")
        # One at a time: as in Kafka, a user may be in a request only once.
        for bits in (256, 512):
            secret = f"SCRAM-SHA-{bits}=[iterations=4096,password={_PASSWORD}]"
            tools.admin.ok(_CONFIGS, *alice, "--alter", "--add-config", secret)
        shown = tools.admin.ok(_CONFIGS, *alice, "--describe")
        expect("SCRAM-SHA-256=iterations=4096" in shown.out and "SCRAM-SHA-512=iterations=4096" in shown.out, shown)
        expect(_PASSWORD not in shown.out, shown)


def _check_acls(report: Report, tools: SecureTools) -> None:
    alice = tools.file("alice-first", tools.login("SCRAM-SHA-256"))
    with report.check("the console producer is denied without an ACL"):
        said = tools.produce(alice, "denied")
        expect(_DENIED in said, said)
    with report.check("AclCommand adds, lists and removes ACLs"):
        for principal in ("User:alice", "User:CN=client"):
            who = ("--allow-principal", principal, "--topic", _TOPIC)
            tools.acls("--add", *who, "--producer")
            tools.acls("--add", *who, "--consumer", "--group", "readers-", "--resource-pattern-type", "prefixed")
            tools.acls("--add", *who, "--operation", "Read")
        listed = tools.acls("--list", "--topic", _TOPIC)
        expect("principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW" in listed, listed)
        deny = ("--deny-principal", "User:alice", "--operation", "Write", "--topic", _TOPIC)
        tools.acls("--add", *deny)
        # The rule leaves no topic for an idempotent producer, so it is denied before it names one.
        said = tools.produce(alice, "denied")
        expect("ClusterAuthorizationException" in said, said)
        tools.acls("--remove", "--force", *deny)
        expect("DENY" not in tools.acls("--list", "--topic", _TOPIC), "the rule is still there")


def _check_logins(report: Report, tools: SecureTools) -> None:
    logins = {name: tools.login(name) for name in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")}
    logins |= {"OAUTHBEARER": tools.token_login(), "a client certificate": tools.certificate()}
    sent: list[str] = []
    for name, login in logins.items():
        with report.check(f"the console tools write and read with {name} over TLS"):
            file = tools.file(name.replace(" ", "-"), login)
            said = tools.produce(file, name)
            expect("ERROR" not in said, said)
            sent.append(name)
            found = tools.consume(file, len(sent))
            expect(sorted(found) == sorted(sent), found)


def _check_strangers(report: Report, tools: SecureTools) -> None:
    with report.check("the console producer says what is wrong with a password, and with a certificate"):
        said = tools.produce(tools.file("wrong", tools.login("SCRAM-SHA-512", password="wrong")), "denied")
        expect("SaslAuthenticationException" in said, said)
        said = tools.produce(tools.file("distrusting", tools.login("SCRAM-SHA-512"), trusts=False), "denied")
        expect("SSL handshake failed" in said, said)
