"""What `penstock bench` runs: penstock and its peers, the same work in one run."""
