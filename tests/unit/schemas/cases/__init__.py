"""Tables of compatibility: two schemas, what breaks readers in each direction, and the rule that says so."""
