"""Dashboards of the history, for Grafana and for InfluxDB 2, from one list of panels."""
