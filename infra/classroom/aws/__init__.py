"""Access to AWS: clients, rates, errors in sentences, and records of what AWS said."""
