"""TLS: contexts from files, reloaded when the files change; certificates, and the principals they stand for.

- `context.py`: SSL contexts for servers and clients, with errors in words.
- `reload.py`: `ReloadingTls`, the contexts of a broker; new handshakes use renewed files.
- `handshake.py`: handshakes that tell the client why they failed.
- `certificates.py`: subject, names and expiry of a certificate.
- `principal_rules.py`: `tls.principal.mapping.rules`.
- `dev_certificates.py`: a CA and certificates for development.
"""
