"""`headrace probe`: how long messages take, all the time."""
