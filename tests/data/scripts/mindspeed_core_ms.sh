#!/bin/bash
# In the style of MindSpeed-Core-MS: msrun, layers of each stage and chunk by hand.
MASTER_PORT=6012
LOCAL_WORKERS=4
NODES=1

DISTRIBUTED_ARGS="
    --worker_num $(($LOCAL_WORKERS*$NODES)) \
    --local_worker_num $LOCAL_WORKERS \
    --master_port $MASTER_PORT \
    --log_dir msrun_log \
    --join True \
    --cluster_time_out 300 \
    --bind_core True
"
msrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    --num-layers 10 \
    --hidden-size 512 \
    --num-attention-heads 8 \
    --seq-length 512 \
    --max-position-embeddings 512 \
    --position-embedding-type rope \
    --pipeline-model-parallel-size 2 \
    --num-layer-list 4,6 \
    --micro-batch-size 2 \
    --global-batch-size 16 \
    --train-iters 200 \
    --lr 0.0006 \
    --lr-decay-style cosine \
    --no-load-optim \
    --no-load-rng \
    --data-path ${DATA_HOME}/wiki_text_document \
    --tokenizer-type GPT2BPETokenizer \
    --vocab-file ${DATA_HOME}/vocab.json \
    --merge-file ${DATA_HOME}/merges.txt \
    --split 98,2,0 \
    --distributed-backend nccl
