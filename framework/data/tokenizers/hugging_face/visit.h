#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace tessera::data::hugging_face {

/// A function that is handed down and called, never kept: no memory is taken for what it captures.
template <class Argument>
class Visit {
 public:
  template <class Function, class = std::enable_if_t<!std::is_same_v<std::decay_t<Function>, Visit>>>
  Visit(const Function& function)  // NOLINT: made in passing
      : state_(std::addressof(function)),
        call_([](const void* state, Argument argument) { (*static_cast<const Function*>(state))(argument); }) {}
  void operator()(Argument argument) const { call_(state_, argument); }

 private:
  const void* state_;
  void (*call_)(const void*, Argument);
};

}  // namespace tessera::data::hugging_face
