"""`firearrow console`: pages for a browser that answer the questions of the command line.

The verbs of the command line are asked (`questions`), so nothing is computed here that they compute already; the
brokers decide what a visitor may see and do, by the visitor's own keys.

- `__main__`: the process that `firearrow broker --console` starts
- `actions`: what changes something: a form, a preview, a confirmation, a line in the log
- `app`: what every request passes, and the errors that pages end with
- `connections`: connections of visitors, bounded
- `forms`: what they send, bounded
- `jobs`: actions that run on after their request
- `message_pages`: searches, one message, what comes live, dead letters
- `pages`: the other pages
- `questions`: verbs of the command line, with what they print kept as values; what pages share
- `rendering`: templates, cells with their links, curves
- `server`: the command and its process
- `sessions`: who visits: sessions, logins, failed logins

Templates and static files are in `templates` and `static`. htmx and uPlot are there with their licences.
"""
