"""`firearrow store ...`: verify, repair, dump, stat, backup.

- `backup`: a store copied, also from below a running broker, into a folder that is a good store itself
- `backup_copy`: Files copied as they are: holes stay holes, times stay
- `backup_manifest`: the paper of a backup, `backup.json` in its folder: what was copied from where, which
  files never change
- `commands`: `firearrow store NAME …`: the tools by name
- `dump`: What a store holds, printed: records, entries of a queue, index files, the checkpoint
- `lock`: The store's lock, as a tool takes it: a stopped store is held so that no broker starts on it
  meanwhile
- `process_pool`: the audit's work on several cores, one process each, since its native loops keep the GIL
- `quarantine`: what a repair takes away or changes, kept in the store's folder under `removed-<time>`, by
  its path there
- `repair`: a stopped store mended after what `verify` found
- `repair_configs`: Config files mended: a damaged one gives way to its good `.bak`, offsets beyond the end
  go back
- `report`: What a verification says: lines for people, an object for programs
- `stat`: What a store holds in numbers: sizes, messages by topic and queue, times, groups with their lag,
  waste
- `store_layout`: how large the files of a store are, told from the files
- `verify`: one store looked at whole, from its log to its smallest file
- `verify_timers`: The timer's files looked at: `timerwheel`, `timerlog/`, `config/timercheck`
"""
