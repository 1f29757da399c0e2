"""Who may do what: users, rules, signatures, and the check before each request. Apache: the module `auth`.

- `access`: Access: what the options ask for to check requests
- `access_control`: AccessControl: lets requests through, or refuses them, before they reach their handlers
- `account_access`: AccountAccess: checks by the accounts of `plain_acl.yml`
- `audit_log`: one JSON line for each change of users and rules, and for each refusal
- `bodies`: UserInfo and AclInfo, the JSON objects of bodies and of our files, and users and acls
- `body_rights`: what requests need whose body names topics and groups
- `broker_facts`: what rules know about the broker: its cluster, and whose message is at an offset
- `failed_logins`: slows down who guesses passwords, and logs failures once
- `plain_access`: checks requests by the accounts of `plain_acl.yml` and `conf/acl`
- `plain_accounts`: the accounts of that file, by which brokers up to 5.2 check requests
- `plain_files`: these files: read again when they change, joined, and rewritten
- `plain_yaml`: its YAML, parsed by PyYAML
- `remote_addresses`: its white addresses
- `request_rights`: what each request code needs, in one table
- `signatures`: the signature of a request, and its check
- `tables`: the users and what they may do, with their files
- `user_access`: UserAccess: checks by users and rules, with their files
"""
