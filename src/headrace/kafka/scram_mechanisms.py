"""The numbers of SCRAM mechanisms in the requests about users' credentials."""

from headrace.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512

MECHANISMS = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
NUMBERS = {mechanism: number for number, mechanism in MECHANISMS.items()}
