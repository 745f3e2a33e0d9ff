"""`--host NAME`: run the labs on another machine over SSH, and bring everything home.

`ssh` (the connection, and what its errors mean), `tree` (what of the working tree is sent),
`agent` (what runs there), `client` (one run: start, follow, fetch), `merge` (what came home),
`hosts` (names, the class, start and stop), `cost`, `front` (`--host`), `commands`
(`labkit remote`).
"""
