"""Read a configuration with AWS ParallelCluster's own schema: in the environment of that tool."""

import json
import sys

import yaml
from marshmallow import ValidationError
from pcluster.schemas.cluster_schema import ClusterSchema

try:
    with open(sys.argv[1], encoding="utf-8") as file:
        ClusterSchema(cluster_name="lab").load(yaml.safe_load(file))
except ValidationError as error:
    sys.exit(json.dumps(error.messages))
