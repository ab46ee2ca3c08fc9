#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::torch {

/// Whether a global, "module name", is an element type: "torch float32".
bool is_element_type(std::string_view global);

/// A value of a Python pickle, read as data. Nothing is executed: a call is represented by the function and its
/// arguments.
struct PickleNode {
  enum class Kind {
    none,
    boolean,
    integer,
    real,
    words,       ///< a string or bytes, in `text`
    list,        ///< items
    tuple,       ///< items
    dict,        ///< items: key, value, key, value, ... in the order of insertion
    global,      ///< text: "torch FloatStorage"
    call,        ///< items: function, tuple of arguments, and the state if there is one
    persistent,  ///< items: the persistent id; used for torch's storages
  };
  Kind kind = Kind::none;
  bool flag = false;
  std::int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<const PickleNode*> items;

  /// The value of a text key of a dict; null if there is none or this is not a dict.
  const PickleNode* find(std::string_view key) const;
  bool is_none() const { return kind == Kind::none; }
};

/// A parsed pickle. It owns all nodes, which may be shared by several parents.
class Pickle {
 public:
  /// Parses protocols 2 to 5 as torch.save and Python write plain data. Throws ConfigError, beginning with `speaker`,
  /// for an opcode that does more than build data, for a global that no checkpoint of Megatron-LM needs (`os.system` is
  /// one), for truncated data and invalid references, and for more than ten million values. `also`: allowed prefixes of
  /// further globals, as "module name". Source: the opcodes as CPython's pickletools describes them.
  Pickle(std::span<const std::byte> bytes, const std::string& speaker, const std::vector<std::string>& also = {});
  Pickle(Pickle&&) = default;

  const PickleNode& root() const { return *root_; }

 private:
  friend class PickleReader;
  std::deque<PickleNode> nodes_;
  const PickleNode* root_ = nullptr;
};

/// Writes a pickle of protocol 2 or 4, value by value.
class PickleWriter {
 public:
  explicit PickleWriter(char protocol = 2) : protocol_(protocol), out_({'\x80', protocol}) {}
  void none() { out_ += 'N'; }
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }
  void integer(std::int64_t value);
  void real(double value);
  void text(std::string_view words);
  void global(std::string_view module, std::string_view name);
  void empty_dict() { out_ += '}'; }
  void empty_list() { out_ += ']'; }
  void empty_tuple() { out_ += ')'; }
  /// Starts a sequence of values, which the next call of set_items, append_items or tuple ends: they are added to the
  /// dict or list below the mark, or become a tuple.
  void mark() { out_ += '('; }
  void set_items() { out_ += 'u'; }
  void append_items() { out_ += 'e'; }
  void set_item() { out_ += 's'; }  ///< adds one key and value to the dict below them; needs no mark
  void tuple() { out_ += 't'; }
  void call() { out_ += 'R'; }        ///< pops function and argument tuple, pushes the result
  void make() { out_ += '\x81'; }     ///< pops class and argument tuple, pushes the object
  void state() { out_ += 'b'; }       ///< pops object and state, pushes the object
  void persistent() { out_ += 'Q'; }  ///< pops a persistent id, pushes the object it refers to
  /// Numbers the value on top of the stack, 0, 1, 2, ...: recall() pushes the same value again. Only in protocol 4.
  std::uint32_t memoize();
  void recall(std::uint32_t number);
  std::string finish() const { return out_ + '.'; }

 private:
  void number(std::uint64_t value, std::size_t size);
  void short_text(std::string_view words);

  char protocol_;
  std::string out_;
  std::uint32_t memoized_ = 0;
};

}  // namespace tessera::torch
