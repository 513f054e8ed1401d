"""JSON Schema, drafts 4 to 2020-12: parsing, canonical form and compatibility."""
