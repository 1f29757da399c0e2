"""`firearrow store ...`: verify, repair, dump, stat, backup.

- `arguments`: the arguments of its verbs, each declared once
- `backup`: copies a store, also of a running broker, into a folder that is a consistent store itself
- `backup_copy`: copies files with their holes and times, and the progress files so that they agree
- `backup_manifest`: the manifest of a backup, `backup.json` in its folder: its source, and its full log files
- `commands`: the command line of `firearrow store`
- `dump`: prints what a store holds: records, queue entries, index files, the checkpoint
- `lock`: the lock of a stopped store, so that no broker starts on it while a tool works
- `process_pool`: runs the audit in several processes
- `quarantine`: keeps the originals of what a repair removes or changes, under `removed-<time>` in the store
- `repair`: repairs a stopped store after `verify`
- `repair_configs`: repairs config files: restores a damaged one from its `.bak`, resets offsets beyond a
  queue's end
- `report`: prints the result of `verify`: lines for people, an object for programs
- `stat`: a store in numbers: sizes, messages by topic and queue, times, groups with their lag, waste
- `store_layout`: derives the file sizes of a store from its files
- `verify`: checks a whole store, from its log to its smallest file
"""
