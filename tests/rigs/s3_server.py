"""An S3 server of Python (moto) that accepts the keys of one user only; run by `stores.s3_server`.

Prints its address and the user's keys, then serves until it is ended.
"""

from __future__ import annotations

import json
import os
import sys
import threading

os.environ.update(AWS_ACCESS_KEY_ID="setup", AWS_SECRET_ACCESS_KEY="setup", AWS_DEFAULT_REGION="us-east-1")
# The calls that make the user and the bucket are not checked; all later ones are.
_SET_UP_CALLS = 4
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(_SET_UP_CALLS)

import boto3  # noqa: E402 - moto reads these variables when it is imported
from moto.server import ThreadedMotoServer  # noqa: E402


def main() -> None:
    """Serve a bucket that is called ``bucket``."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    iam, store = boto3.client("iam", endpoint_url=url), boto3.client("s3", endpoint_url=url)
    store.create_bucket(Bucket="bucket")
    iam.create_user(UserName="ada")
    may_all = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_user_policy(UserName="ada", PolicyName="all", PolicyDocument=json.dumps(may_all))
    key = iam.create_access_key(UserName="ada")["AccessKey"]
    sys.stdout.write(f"ready: {url} {key['AccessKeyId']} {key['SecretAccessKey']}\n")
    sys.stdout.flush()
    threading.Event().wait()


main()
