#pragma once

#include "framework/autograd/tape.h"

namespace tessera::training {

/// Is told about the backward passes of a training step.
class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  /// A step begins; its gradients are zero or stale (Leaf::make_grad_stale).
  virtual void begin_step() = 0;
  /// A backward pass begins. `last`: it belongs to the last micro-batch of its chunk and completes the gradients of the
  /// chunk's parameters.
  virtual void begin_pass(bool last) = 0;
  /// The current pass will not change the gradient of this parameter any more.
  virtual void gradient_complete(const autograd::Leaf& leaf) = 0;
  /// The pass has ended.
  virtual void end_pass() = 0;
};

}  // namespace tessera::training
