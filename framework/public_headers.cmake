# The public interface: the headers that a program beside Tessera may include, relative to framework/. Names in other headers may change with any
# version. docs/extending.md and docs/tutorial_tensor_parallel.md show their use. Each compiles alone and includes nothing but the standard
# library and other headers of Tessera. `installed_headers` is this list and what it includes, which is what an installation needs.
set(public_headers
  # A program with types of its own
  cli/run.h recipe/registries.h options/choose.h options/registry.h options/schema.h options/value.h base/error.h
  # Tensors, and operations with their gradients
  tensor/batch.h tensor/tensor.h kernels/activation.h autograd/tape.h autograd/ops/activation.h autograd/ops/attention.h
  autograd/ops/columns.h autograd/ops/embedding.h autograd/ops/linear.h autograd/ops/norm.h autograd/ops/recompute.h
  autograd/ops/residual.h autograd/ops/rows.h autograd/ops/vocabulary_loss.h
  # Layers and models
  nn/attention_layer.h nn/feed_forward.h nn/key_value_cache.h nn/layers.h nn/mixture_of_experts.h nn/module.h nn/parameter.h
  nn/rotary_embedding.h model/architecture.h model/gpt_architecture.h model/model.h model/objective.h model/objective_loss.h
  # Optimizers, schedules, data, tokenizers
  optim/optimizer.h schedule/schedule.h data/dataset.h data/sampler.h tokenizers/tokenizer.h
  # Processes, tensor parallelism and weights, for a program with a training loop of its own
  comm/communicator.h parallel/model_parallel.h parallel/process_groups.h parallel/tensor_data.h parallel/tensor_parallel_ops.h
  training/step/gradient_sync.h training/saving/saving.h checkpoint/weight_source.h)

set(installed_headers ${public_headers})
set(to_read ${public_headers})
while(to_read)
  list(POP_FRONT to_read header)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/${header})
  file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/${header} includes REGEX "^#include \"framework/")
  foreach(include ${includes})
    string(REGEX REPLACE "^#include \"framework/([^\"]+)\".*" "\\1" included "${include}")
    if(NOT included IN_LIST installed_headers)
      list(APPEND installed_headers ${included})
      list(APPEND to_read ${included})
    endif()
  endforeach()
endwhile()
