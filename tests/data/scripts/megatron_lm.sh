#!/bin/bash
# In the style of Megatron-LM: arrays, paths as arguments.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=1
WORLD_SIZE=$(($GPUS_PER_NODE * $NUM_NODES))

CHECKPOINT_PATH=$1
DATA_PATH=${2:-data/corpus_text_document}

LAUNCH_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr localhost
    --master_port 6000
)
MODEL_ARGS=(
    --num-layers 24
    --hidden-size 1024
    --num-attention-heads 16
    --seq-length 1024
    --max-position-embeddings 1024
    --attention-backend auto # the kernel that fits
)
RUN_ARGS=(
    --micro-batch-size 4
    --global-batch-size $((WORLD_SIZE * 8))
    --train-iters 5000
    --lr 3e-4
    --min-lr 3e-5
    --lr-decay-style cosine
    --lr-warmup-fraction .01
    --adam-beta1 0.9
    --adam-beta2 0.95
    --weight-decay 0.1
    --clip-grad 1.0
    --bf16
)
torchrun ${LAUNCH_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    ${RUN_ARGS[@]} \
    --tensor-model-parallel-size 2 \
    --sequence-parallel \
    --data-path $DATA_PATH \
    --vocab-file vocab.json \
    --merge-file merges.txt \
    --split 949,50,1 \
    --save $CHECKPOINT_PATH \
    --save-interval 500 \
    --eval-interval 500 \
    --eval-iters 10 \
    --log-interval 10
