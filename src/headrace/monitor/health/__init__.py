"""The problems of a cluster, in words, with what to do about each."""
