#!/bin/bash
# In the style of Megatron-DeepSpeed: a JSON file made on the way, one long command.
DIR=$(pwd)
GPUS=8
ZERO_STAGE=0
MICRO_BATCH=4
GLOBAL_BATCH=64
EXP=${1:-gpt_small}

CONFIG=$DIR/ds_config.json
cat <<EOT > $CONFIG
{
  "train_batch_size": $GLOBAL_BATCH,
  "train_micro_batch_size_per_gpu": $MICRO_BATCH,
  "zero_optimization": {"stage": $ZERO_STAGE}
}
EOT

options=" \
    --tensor-model-parallel-size 1 \
    --pipeline-model-parallel-size 1 \
    --num-layers 12 \
    --hidden-size 768 \
    --num-attention-heads 12 \
    --seq-length 1024 \
    --max-position-embeddings 1024 \
    --micro-batch-size $MICRO_BATCH \
    --global-batch-size $GLOBAL_BATCH \
    --train-iters 3000 \
    --lr 6.0e-4 \
    --min-lr 6.0e-5 \
    --lr-decay-style cosine \
    --lr-warmup-iters 100 \
    --weight-decay 0.1 \
    --adam-beta2 0.95 \
    --clip-grad 1.0 \
    --data-path ${DIR}/data/my-gpt2_text_document \
    --vocab-file ${DIR}/gpt2-vocab.json \
    --merge-file ${DIR}/gpt2-merges.txt \
    --split 98,2,0 \
    --log-interval 10 \
    --eval-interval 100 \
    --eval-iters 10 \
    --save-interval 1000 \
    --save ${DIR}/checkpoints/${EXP}"

run="deepspeed --num_gpus $GPUS ${DIR}/pretrain_gpt.py ${options}"
$run &> ${EXP}.log
