"""Where to set certificates: of the broker, in Java, in librdkafka and in Python."""

from headrace.security.tls.dev_certificates import DevCertificates


def advice(made: DevCertificates) -> str:
    return "\n\n".join([_broker(made), *(_clients(made) if made.clients else [_server_only(made)])])


def _broker(made: DevCertificates) -> str:
    lines = [
        "The broker (headrace serve --config FILE):",
        '  listeners = ["tls://:9093"]',
        f'  tls.cert.file = "{made.broker.cert_file}"',
        f'  tls.key.file = "{made.broker.key_file}"',
    ]
    if made.clients:
        lines += [
            f'  tls.ca.file = "{made.ca.cert_file}"',
            '  tls.client.auth = "required"',
            "  tls.principal.mapping.rules = 'RULE:^CN=([^,]+).*$/$1/,DEFAULT'",
        ]
    return "\n".join(lines)


def _server_only(made: DevCertificates) -> str:
    ca = made.ca.cert_file
    return "\n".join(
        [
            "Clients trust the CA:",
            f"  Java        security.protocol=SSL  ssl.truststore.type=PEM  ssl.truststore.location={ca}",
            f"  librdkafka  security.protocol=ssl  ssl.ca.location={ca}",
            f'  Python      ssl.create_default_context(cafile="{ca}")',
        ]
    )


def _clients(made: DevCertificates) -> list[str]:
    ca = made.ca.cert_file
    texts = []
    for client in made.clients:
        texts.append(
            "\n".join(
                [
                    f"{client.name}, with Java's clients (properties):",
                    "  security.protocol=SSL",
                    "  ssl.truststore.type=PEM",
                    f"  ssl.truststore.location={ca}",
                    "  ssl.keystore.type=PEM",
                    f"  ssl.keystore.location={client.keystore_file}",
                    f"{client.name}, with librdkafka (confluent-kafka, kcat -X):",
                    "  security.protocol=ssl",
                    f"  ssl.ca.location={ca}",
                    f"  ssl.certificate.location={client.cert_file}",
                    f"  ssl.key.location={client.key_file}",
                    f"{client.name}, in Python (aiokafka's ssl_context, kafka-python):",
                    f'  context = ssl.create_default_context(cafile="{ca}")',
                    f'  context.load_cert_chain("{client.cert_file}", "{client.key_file}")',
                ]
            )
        )
    return texts
