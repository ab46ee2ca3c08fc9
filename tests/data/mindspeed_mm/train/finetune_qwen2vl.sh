#!/bin/bash
# A script of the form of MindSpeed-MM's examples, for a small model on two stages.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export HCCL_CONNECT_TIMEOUT=1200
export OWN_VARIABLE=1

NPUS_PER_NODE=4
NNODES=1
MM_DATA="./settings/data.json"
MM_MODEL="./settings/model.json"
MM_TOOL="./settings/tools.json"
TP=1
PP=2
CP=1
MBS=1
GRAD_ACC_STEP=8
DP=$(($NPUS_PER_NODE*$NNODES/$TP/$PP/$CP))
GBS=$(($MBS*$GRAD_ACC_STEP*$DP))

GPT_ARGS="
    --use-mcore-models \
    --tensor-model-parallel-size ${TP} \
    --pipeline-model-parallel-size ${PP} \
    --context-parallel-size ${CP} \
    --context-parallel-algo ulysses_cp_algo \
    --micro-batch-size ${MBS} \
    --global-batch-size ${GBS} \
    --tokenizer-type NullTokenizer \
    --vocab-size 300 \
    --seq-length 256 \
    --make-vocab-size-divisible-by 1 \
    --normalization LayerNorm \
    --use-fused-rmsnorm \
    --swiglu \
    --use-fused-swiglu \
    --no-masked-softmax-fusion \
    --lr 1.0e-3 \
    --lr-decay-style cosine \
    --weight-decay 0 \
    --train-iters 200 \
    --lr-warmup-fraction 0.1 \
    --clip-grad 0.0 \
    --adam-beta1 0.9 \
    --adam-beta2 0.999 \
    --no-gradient-accumulation-fusion \
    --seed 42 \
    --bf16 \
    --load weights/mm \
    --variable-seq-lengths \
    --use-distributed-optimizer \
    --use-flash-attn \
    --no-load-optim \
    --no-load-rng \
    --no-save-optim \
    --no-save-rng \
    --num-workers 8 \
    --distributed-timeout-minutes 20 \
"
MM_ARGS="
    --mm-data $MM_DATA \
    --mm-model $MM_MODEL \
    --mm-tool $MM_TOOL
"
OUTPUT_ARGS="
    --log-interval 1 \
    --save-interval 100 \
    --eval-interval 100 \
    --eval-iters 5 \
    --save save_dir \
    --ckpt-format torch \
    --log-tps \
"
logfile=$(date +%Y%m%d)
torchrun --nproc_per_node $NPUS_PER_NODE --nnodes $NNODES --node_rank 0 pretrain_vlm.py \
    $GPT_ARGS $MM_ARGS $OUTPUT_ARGS --distributed-backend nccl 2>&1 | tee logs/train_${logfile}.log
STEP_TIME=`grep "elapsed time per iteration" logs/train_${logfile}.log | awk -F ':' '{print$5}' | awk -F '|' '{print$1}'`
echo "$STEP_TIME"
