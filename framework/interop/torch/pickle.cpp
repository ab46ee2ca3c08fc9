#include "framework/interop/torch/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "framework/base/error.h"
#include "framework/interop/torch/pickle_ops.h"

namespace tessera::torch {
namespace {

using Node = PickleNode;
using Kind = PickleNode::Kind;

constexpr std::size_t most_nodes = 10'000'000;

/// What may be named. Naming is all that happens: nothing here is looked up, imported or called.
const std::set<std::string>& known_globals() {
  static const std::set<std::string> known = {"argparse Namespace",
                                              "types SimpleNamespace",
                                              "collections OrderedDict",
                                              "_codecs encode",
                                              "__builtin__ set",
                                              "builtins set",
                                              "__builtin__ frozenset",
                                              "builtins frozenset",
                                              "__builtin__ complex",
                                              "builtins complex",
                                              "__builtin__ slice",
                                              "builtins slice",
                                              "__builtin__ bytearray",
                                              "builtins bytearray",
                                              "pathlib PosixPath",
                                              "numpy dtype",
                                              "numpy ndarray",
                                              "numpy.core.multiarray _reconstruct",
                                              "numpy._core.multiarray _reconstruct",
                                              "numpy.core.multiarray scalar",
                                              "numpy._core.multiarray scalar",
                                              "torch Size",
                                              "torch device",
                                              "torch._utils _rebuild_tensor_v2",
                                              "torch._utils _rebuild_parameter",
                                              "torch._tensor _rebuild_from_type_v2",
                                              "torch.nn.parameter Parameter",
                                              "torch Tensor",
                                              "torch.storage UntypedStorage",
                                              "torch FloatStorage",
                                              "torch DoubleStorage",
                                              "torch HalfStorage",
                                              "torch BFloat16Storage",
                                              "torch LongStorage",
                                              "torch IntStorage",
                                              "torch ShortStorage",
                                              "torch CharStorage",
                                              "torch ByteStorage",
                                              "torch BoolStorage"};
  return known;
}

/// Enumerations in the arguments of a run: megatron.core.transformer.enums AttnBackend, signal Signals, ...
bool is_known(const std::string& global) {
  if (known_globals().count(global) != 0 || is_element_type(global)) return true;
  for (const char* module : {"megatron.", "signal ", "torch.nn.init ", "torch.nn.functional "})
    if (global.rfind(module, 0) == 0) return true;
  return false;
}

}  // namespace

bool is_element_type(std::string_view global) {
  constexpr std::string_view torch = "torch ", of_one_byte = "float8_";
  constexpr std::array<std::string_view, 10> types = {"float32", "float64", "float16", "bfloat16", "int64",
                                                      "int32",   "int16",   "int8",    "uint8",    "bool"};
  if (global.substr(0, torch.size()) != torch) return false;
  global.remove_prefix(torch.size());
  return global.substr(0, of_one_byte.size()) == of_one_byte ||
         std::find(types.begin(), types.end(), global) != types.end();
}

const Node* Node::find(std::string_view key) const {
  if (kind != Kind::dict) return nullptr;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    if (items[i]->kind == Kind::words && items[i]->text == key) return items[i + 1];
  return nullptr;
}

/// The machine that a pickle is a program for, with the opcodes that build data and no others.
class PickleReader {
 public:
  PickleReader(std::span<const std::byte> bytes, const std::string& speaker, const std::vector<std::string>& also,
               Pickle& into)
      : ops_(bytes, speaker), also_(also), into_(into) {}

  const Node* run() {
    for (op_ = ops_.next(); op_.code != '.'; op_ = ops_.next())
      if (!plain() && !container() && !memory()) object();
    if (stack_.size() != 1) refuse("it ends with ", stack_.size(), " values; one was expected");
    return stack_.back();
  }

 private:
  template <class... Words>
  [[noreturn]] void refuse(const Words&... message) const {
    ops_.refuse(message...);
  }

  // --- The stack
  Node& push(Kind kind) {
    if (into_.nodes_.size() >= most_nodes) refuse("more than ", most_nodes, " values");
    auto& node = into_.nodes_.emplace_back();
    node.kind = kind;
    stack_.push_back(&node);
    return node;
  }
  Node* pop() {
    if (stack_.size() <= lowest()) refuse("byte ", op_.at, " takes a value, but the stack has none");
    auto* node = stack_.back();
    stack_.pop_back();
    return node;
  }
  Node* top() {
    if (stack_.size() <= lowest()) refuse("byte ", op_.at, " takes a value, but the stack has none");
    return stack_.back();
  }
  std::size_t lowest() const { return marks_.empty() ? 0 : marks_.back(); }
  std::vector<const Node*> pop_to_mark() {
    if (marks_.empty()) refuse("byte ", op_.at, " takes the items above a mark, but no mark is on the stack");
    std::vector<const Node*> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  std::vector<const Node*> pop_many(std::size_t count) {
    std::vector<const Node*> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  // --- Opcodes, by what they do
  void push_integer(std::int64_t value) { push(Kind::integer).integer = value; }

  bool plain() {
    switch (op_.code) {
      case 0x80:  // PROTO
        if (op_.number > 5) refuse("protocol ", op_.number, "; at most 5 is read");
        return true;
      case 0x95:  // FRAME
        return true;
      case 'N':
        push(Kind::none);
        return true;
      case 0x88:
        push(Kind::boolean).flag = true;
        return true;
      case 0x89:
        push(Kind::boolean);
        return true;
      case 'J':
        push_integer(static_cast<std::int32_t>(op_.number));
        return true;
      case 'K':
      case 'M':
      case 0x8A:  // of numbers of more than 8 bytes the lower half: random states, not sizes
        push_integer(static_cast<std::int64_t>(op_.number));
        return true;
      case 'G':
        push_real();
        return true;
      case 'X':
      case 'B':
      case 0x8C:
      case 'C':
      case 0x8D:
      case 0x8E:
        push(Kind::words).text = op_.text;
        return true;
      default:
        return false;
    }
  }

  /// Eight bytes, the highest first.
  void push_real() {
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | (op_.number >> (8 * i) & 255);
    push(Kind::real).real = std::bit_cast<double>(bits);
  }

  bool container() {
    switch (op_.code) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '}':
        push(Kind::dict);
        return true;
      case ']':
        push(Kind::list);
        return true;
      case ')':
        push(Kind::tuple);
        return true;
      case 't': {
        auto items = pop_to_mark();
        push(Kind::tuple).items = std::move(items);
        return true;
      }
      case 0x85:
      case 0x86:
      case 0x87: {
        auto items = pop_many(op_.code - 0x84U);
        push(Kind::tuple).items = std::move(items);
        return true;
      }
      case 's':
        add_to(pop_many(2), Kind::dict);
        return true;
      case 'u':
        add_to(pop_to_mark(), Kind::dict);
        return true;
      case 'a':
        add_to(pop_many(1), Kind::list);
        return true;
      case 'e':
        add_to(pop_to_mark(), Kind::list);
        return true;
      default:
        return false;
    }
  }

  void add_to(const std::vector<const Node*>& items, Kind kind) {
    auto* node = top();
    if (kind == Kind::dict && items.size() % 2 != 0) refuse("a key without a value before byte ", op_.at);
    // An OrderedDict is a call whose items are set afterwards: from here on it is a dict.
    if (node->kind == Kind::call && kind == Kind::dict) {
      const auto& callee = *node->items.front();
      if (callee.text != "collections OrderedDict") refuse("keys are set in something that is not a dict");
      node->kind = Kind::dict;
      node->items.clear();
    }
    if (node->kind != kind) refuse("byte ", op_.at, " adds to something that is not a list or dict of that kind");
    node->items.insert(node->items.end(), items.begin(), items.end());
  }

  bool memory() {
    switch (op_.code) {
      case 'q':
      case 'r':
        memo_[op_.number] = top();
        return true;
      case 0x94:
        memo_[memo_.size()] = top();
        return true;
      case 'h':
      case 'j':
        recall(op_.number);
        return true;
      default:
        return false;
    }
  }
  void recall(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("byte ", op_.at, " recalls value ", index, ", which was never kept");
    stack_.push_back(found->second);
    if (stack_.size() > most_nodes) refuse("more than ", most_nodes, " values");
  }

  void object() {
    switch (op_.code) {
      case 'c': {
        std::string name(op_.text);
        std::replace(name.begin(), name.end(), '\n', ' ');
        return push_global(std::move(name));
      }
      case 0x93: {
        const auto parts = pop_many(2);
        return push_global(parts[0]->text + " " + parts[1]->text);
      }
      case 'R':
      case 0x81: {
        auto items = pop_many(2);
        if (items[0]->kind != Kind::global) refuse("byte ", op_.at, " calls something that has no name");
        if (items[1]->kind != Kind::tuple) refuse("byte ", op_.at, " calls ", items[0]->text, " without a tuple");
        push(Kind::call).items = std::move(items);
        return;
      }
      case 'b': {
        const auto* state = pop();
        auto* node = top();
        if (node->kind == Kind::dict) return;  // attributes of an OrderedDict: `_metadata` of a state dict
        if (node->kind != Kind::call) refuse("byte ", op_.at, " gives a state to something that is not an object");
        node->items.push_back(state);
        return;
      }
      case 'Q': {
        const auto* id = pop();
        push(Kind::persistent).items = {id};
        return;
      }
      default:
        must(false, "every opcode that PickleOps gives is known here");
    }
  }
  void push_global(std::string name) {
    if (!is_known(name) &&
        std::none_of(also_.begin(), also_.end(), [&](const auto& begin) { return name.rfind(begin, 0) == 0; }))
      refuse("it names ", name, ", which no checkpoint of this kind needs; nothing of the file was executed");
    push(Kind::global).text = std::move(name);
  }

  PickleOps ops_;
  const std::vector<std::string>& also_;
  Pickle& into_;
  PickleOp op_;  ///< the present one
  std::vector<Node*> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, Node*> memo_;
};

Pickle::Pickle(std::span<const std::byte> bytes, const std::string& speaker, const std::vector<std::string>& also) {
  root_ = PickleReader(bytes, speaker, also, *this).run();
}

void PickleWriter::number(std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out_ += static_cast<char>(value >> (8 * i) & 255);
}

void PickleWriter::integer(std::int64_t value) {
  if (value == static_cast<std::int32_t>(value)) {
    out_ += 'J';
    number(static_cast<std::uint64_t>(value), 4);
  } else {
    out_ += '\x8A';
    out_ += '\x08';
    number(static_cast<std::uint64_t>(value), 8);
  }
}

void PickleWriter::real(double value) {
  out_ += 'G';
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (std::size_t i = 8; i-- > 0;) out_ += static_cast<char>(bits >> (8 * i) & 255);
}

void PickleWriter::text(std::string_view words) {
  if (protocol_ >= 4 && words.size() < 256) return short_text(words);
  out_ += 'X';
  number(words.size(), 4);
  out_ += words;
}

void PickleWriter::short_text(std::string_view words) {
  out_ += '\x8C';
  number(words.size(), 1);
  out_ += words;
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  if (protocol_ >= 4) {
    short_text(module);
    short_text(name);
    out_ += '\x93';
    return;
  }
  out_ += 'c';
  out_ += module;
  out_ += '\n';
  out_ += name;
  out_ += '\n';
}

std::uint32_t PickleWriter::memoize() {
  out_ += '\x94';
  return memoized_++;
}

void PickleWriter::recall(std::uint32_t value) {
  const bool small = value < 256;
  out_ += small ? 'h' : 'j';
  number(value, small ? 1 : 4);
}

}  // namespace tessera::torch
