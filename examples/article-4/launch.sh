#!/usr/bin/env bash
# The launch script of article 004 as it can run, from here; README.md says what became of each of its words.
# INVENTORY, RANKS (a host) and the words behind it (--model_name FOLDER, --steps 1000) are yours.
set -euo pipefail
cd -- "$(dirname -- "$0")"
export NCCL_DEBUG=${NCCL_DEBUG-INFO} NCCL_IB_DISABLE=${NCCL_IB_DISABLE-1}
config=/opt/nodectl/etc/ds_config.json # the role `deepspeed` wrote it
exec nodectl ${INVENTORY:+-i "$INVENTORY"} launch --code . --engine deepspeed --nproc-per-node "${RANKS:-3}" \
  --env NCCL_DEBUG --env NCCL_IB_DISABLE --need "$config" -- \
  train.py --deepspeed "$config" --gradient_accumulation 4 --learning_rate 6e-5 "$@"
