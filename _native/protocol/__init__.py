"""Rules of RocketMQ's protocol that broker and client share.

- `access_model`: users, resources, policies, with the texts of Apache's bodies
- `fastjson`: the JSON dialect of fastjson 1.x, in which Apache's files and bodies are written
- `message_queue`: one queue of a topic at one broker, and how the members of a group split them
- `name_rules`: names with a special meaning, and which names topics and groups may have
- `policy_decision`: whether a user may do something on a resource from an address
"""
