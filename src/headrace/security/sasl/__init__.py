"""The SASL mechanisms, without the wire: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER."""
