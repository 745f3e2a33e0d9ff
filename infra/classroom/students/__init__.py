"""What students see: pages, links to their own machine, mails."""
