#!/bin/bash
# In the style of Pai-Megatron-Patch: everything by position, sizes by name, the command as text.
set -e
ENV=$1
MODEL_SIZE=$2
BATCH_SIZE=$3
GLOBAL_BATCH_SIZE=$4
LR=$5
PR=$6
DATASET_PATH=$7
OUTPUT_BASEPATH=$8

if [ $ENV = dsw ]; then
    MASTER_ADDR=localhost
    MASTER_PORT=$(shuf -n 1 -i 10000-65535)
    NNODES=1
    NODE_RANK=0
    GPUS_PER_NODE=8
elif [ $ENV = dlc ]; then
    NNODES=${WORLD_SIZE}
    NODE_RANK=${RANK}
    GPUS_PER_NODE=${KUBERNETES_CONTAINER_RESOURCE_GPU}
fi

if [ $MODEL_SIZE = 0.5B ]; then
    LAYERS=24 HIDDEN=896 HEADS=14 GROUPS_OF_KEYS=2 FFN=4864
    tie_option=""
elif [ $MODEL_SIZE = 7B ]; then
    LAYERS=28 HIDDEN=3584 HEADS=28 GROUPS_OF_KEYS=4 FFN=18944
    tie_option=" \
            --untie-embeddings-and-output-weights"
fi

if [ $PR = fp16 ]; then
    pr_options="--fp16 --initial-loss-scale 65536"
elif [ $PR = bf16 ]; then
    pr_options="--bf16"
fi

NAME="pretrain-${MODEL_SIZE}-lr-${LR}-bs-${BATCH_SIZE}"
megatron_options="  \
    --save ${OUTPUT_BASEPATH}/checkpoint/${NAME} \
    --train-data-path ${DATASET_PATH} \
    --lr ${LR} \
    --micro-batch-size ${BATCH_SIZE} \
    --global-batch-size ${GLOBAL_BATCH_SIZE} \
    --train-iters 1000 \
    --num-layers ${LAYERS} \
    --hidden-size ${HIDDEN} \
    --num-attention-heads ${HEADS} \
    --group-query-attention \
    --num-query-groups ${GROUPS_OF_KEYS} \
    --ffn-hidden-size ${FFN} \
    --seq-length 4096 \
    --max-position-embeddings 32768 \
    --position-embedding-type rope \
    --rotary-base 1000000 \
    --normalization RMSNorm \
    --norm-epsilon 1e-6 \
    --swiglu \
    --disable-bias-linear \
    --add-qkv-bias \
    --attention-dropout 0.0 \
    --hidden-dropout 0.0 \
    --tokenizer-type NullTokenizer \
    --vocab-size 151935 \
    --log-interval 1 \
    --eval-interval 10000 \
    --eval-iters 10 \
    --save-interval 500"

run_cmd="torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT
 pretrain_qwen.py ${megatron_options} ${pr_options} ${tie_option}"
echo ${run_cmd}
eval ${run_cmd}
