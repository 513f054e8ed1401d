"""Topics to tables and back."""
