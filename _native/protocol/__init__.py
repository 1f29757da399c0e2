"""Rules of RocketMQ's protocol that broker and client share.

- `access_model`: users, resources, policies, with the texts of Apache's bodies
- `authorization`: whether a user may do something on a resource from an address
- `queue_allocation`: how the members of a group split the queues of a topic, as Apache's strategies do
"""
