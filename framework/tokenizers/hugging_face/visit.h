#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace tessera::tokenizers::hugging_face {

/// A reference to a function object that is passed down and called but not stored, so it needs no allocation. The
/// function object must outlive it.
template <class Argument>
class Visit {
 public:
  template <class Function, class = std::enable_if_t<!std::is_same_v<std::decay_t<Function>, Visit>>>
  Visit(const Function& function)  // implicit conversion is intended
      : state_(std::addressof(function)),
        call_([](const void* state, Argument argument) { (*static_cast<const Function*>(state))(argument); }) {}
  void operator()(Argument argument) const { call_(state_, argument); }

 private:
  const void* state_;
  void (*call_)(const void*, Argument);
};

}  // namespace tessera::tokenizers::hugging_face
