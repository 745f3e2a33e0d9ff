"""Latencies over time: sent to an InfluxDB server if one is configured, shown in the terminal.

results.json is the queue: what is not in the list next to it (results.sent) is sent the next time.
A run has an id and a time of its own from the start, so a point that is sent twice, because the
server died before it answered, is the same point.
"""
