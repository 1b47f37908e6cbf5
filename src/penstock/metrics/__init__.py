"""The metric language (OAL): definitions as plain values, functions as mergeable states."""
