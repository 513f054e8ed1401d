"""`headrace secure`: turn a broker or a cluster into a secured one."""
