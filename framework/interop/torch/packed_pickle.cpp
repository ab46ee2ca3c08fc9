#include "framework/interop/torch/packed_pickle.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "framework/base/error.h"
#include "framework/interop/torch/pickle_ops.h"

namespace tessera::torch {

namespace packed {

/// A range of bytes.
struct ByteRange {
  std::size_t begin = 0, end = 0;
  bool contains(std::size_t at) const { return at >= begin && at < end; }
};

/// What a first pass finds out: the values that are recalled, so that no others are kept for that; and the instructions
/// that make the value of one key. Its stack has the first instruction of each value.
class Survey {
 public:
  Survey(PickleOps ops, std::string_view left_out) : ops_(ops), left_out_(left_out) {
    for (auto op = ops_.next(); op.code != '.'; op = ops_.next()) {
      if (op.code == 'h' || op.code == 'j') note_recalled(op.number);
      if (!move(op)) stack_.push_back(op);
    }
  }
  bool recalled(std::uint64_t number) const { return number < recalled_.size() && recalled_[number]; }
  ByteRange left_out() const { return found_; }

 private:
  void note_recalled(std::uint64_t number) {
    if (number >= ops_.bytes()) ops_.refuse("it recalls value ", number, ", which was never kept");
    if (number >= recalled_.size()) recalled_.resize(static_cast<std::size_t>(number) + 1);
    recalled_[static_cast<std::size_t>(number)] = true;
  }
  void pop(std::size_t count) {
    if (count > stack_.size()) ops_.refuse("its stack has too few values");
    stack_.resize(stack_.size() - count);
  }
  /// Does what the instruction does with the stack, unless it pushes a new value: then false.
  bool move(const PickleOp& op) {
    switch (op.code) {
      case 0x80:
      case 0x95:
      case 0x94:
      case 'q':
      case 'r':
      case 0x85:
        return true;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case 't':
        pop_to_mark(op, true);
        return true;
      case 'u':
      case 'e':
        pop_to_mark(op, false);
        return true;
      case 0x86:
      case 0x93:
      case 'R':
      case 0x81:
      case 'b':
      case 'a':
        pop(1);
        return true;
      case 0x87:
      case 's':
        pop(2);
        return true;
      default:
        return false;
    }
  }
  void pop_to_mark(const PickleOp& op, bool into_one) {
    if (marks_.empty() || marks_.back() > stack_.size()) ops_.refuse("byte ", op.at, " takes items without a mark");
    const auto begin = marks_.back();
    if (op.code == 'u' && marks_.size() == 1 && !left_out_.empty()) look_for_key(begin, op.at);
    const auto first = begin < stack_.size() ? stack_[begin] : op;
    stack_.resize(begin);
    marks_.pop_back();
    if (into_one) stack_.push_back(first);
  }
  void look_for_key(std::size_t begin, std::size_t end) {
    for (auto i = begin; i + 1 < stack_.size(); i += 2)
      if (stack_[i].text == left_out_) found_ = {stack_[i + 1].at, i + 2 < stack_.size() ? stack_[i + 2].at : end};
  }

  PickleOps ops_;
  std::string_view left_out_;
  std::vector<PickleOp> stack_;
  std::vector<std::size_t> marks_;
  std::vector<bool> recalled_;
  ByteRange found_;
};

}  // namespace packed

using Packed = PackedValue;

const PackedValue* PackedPickle::Tuples::add(std::span<const Value> items) {
  constexpr std::size_t block = 4096;
  if (items.empty()) return nullptr;
  if (used_ + items.size() > size_) {
    size_ = std::max(block, items.size());
    used_ = 0;
    blocks_.push_back(std::make_unique<Value[]>(size_));
  }
  auto* at = blocks_.back().get() + used_;
  std::copy(items.begin(), items.end(), at);
  used_ += items.size();
  return at;
}

/// The machine that a pickle is a program for, with the opcodes that build data and no others.
class PackedReader {
 public:
  PackedReader(std::span<const std::byte> bytes, PackedPickle& into,
               const std::function<bool(const std::string&)>& allowed, std::string_view left_out)
      : ops_(bytes, into.speaker_), into_(into), allowed_(allowed), survey_(ops_, left_out) {}

  Packed run() {
    for (auto op = ops_.next(); op.code != '.'; op = ops_.next()) {
      hollow_ = survey_.left_out().contains(op.at);
      if (!plain(op) && !container(op) && !memory(op)) object(op);
    }
    if (stack_.size() != 1) ops_.refuse("it ends with ", stack_.size(), " values; one was expected");
    return stack_.back();
  }

 private:
  using Kind = Packed::Kind;

  void push(Kind kind, std::int64_t integer = 0) {
    auto& value = stack_.emplace_back();
    value.kind = kind;
    value.integer = integer;
  }
  void push_text(std::string_view words) {
    push(Kind::words);
    stack_.back().text = words.data();
    stack_.back().count = static_cast<std::uint32_t>(words.size());
  }
  std::size_t lowest() const { return marks_.empty() ? 0 : marks_.back(); }
  void need(std::size_t count) {
    if (stack_.size() < lowest() + count) ops_.refuse("its stack has too few values");
  }
  Packed& top() {
    need(1);
    return stack_.back();
  }
  Packed pop() {
    const auto value = top();
    stack_.pop_back();
    return value;
  }
  std::span<const Packed> above(std::size_t begin) const { return std::span(stack_).subspan(begin); }
  std::size_t take_mark() {
    if (marks_.empty()) ops_.refuse("items are taken without a mark");
    const auto begin = marks_.back();
    marks_.pop_back();
    return begin;
  }

  bool plain(const PickleOp& op) {
    switch (op.code) {
      case 0x80:
        if (op.number > 5) ops_.refuse("protocol ", op.number, "; at most 5 is read");
        return true;
      case 0x95:
        return true;
      case 'N':
        push(Kind::none);
        return true;
      case 0x88:
      case 0x89:
        push(Kind::boolean, op.code == 0x88 ? 1 : 0);
        return true;
      case 'J':
        push(Kind::integer, static_cast<std::int32_t>(op.number));
        return true;
      case 0x8A:
        if (op.text.size() > 8) ops_.refuse("a number of ", op.text.size(), " bytes");
        push(Kind::integer, static_cast<std::int64_t>(op.number));
        return true;
      case 'K':
      case 'M':
        push(Kind::integer, static_cast<std::int64_t>(op.number));
        return true;
      case 'G':
        push(Kind::real);
        return true;
      case 'X':
      case 'B':
      case 'C':
      case 0x8C:
      case 0x8D:
      case 0x8E:
        push_text(op.text);
        return true;
      default:
        return false;
    }
  }

  void make_tuple(std::size_t begin) {
    const auto items = above(begin);
    Packed tuple;
    tuple.kind = hollow_ ? Kind::hollow : Kind::tuple;
    if (!hollow_) {
      tuple.count = static_cast<std::uint32_t>(items.size());
      tuple.items = into_.tuples_.add(items);
    }
    stack_.resize(begin);
    stack_.push_back(tuple);
  }
  void make_small_tuple(std::size_t count) {
    need(count);
    make_tuple(stack_.size() - count);
  }
  void make_list(Kind kind) {
    push(hollow_ ? Kind::hollow : kind);
    if (hollow_) return;
    stack_.back().index = into_.lists_.size();
    into_.lists_.emplace_back();
  }
  void add_items(std::size_t begin, Kind kind) {
    const auto items = above(begin);
    if (kind == Kind::dict && items.size() % 2 != 0) ops_.refuse("a key without a value");
    if (begin <= lowest()) ops_.refuse("items are added to nothing");
    const auto& into = stack_[begin - 1];
    if (into.kind != kind && into.kind != Kind::hollow) ops_.refuse("items are added to something of another kind");
    if (into.kind == kind) {
      auto& list = into_.lists_[into.index];
      list.insert(list.end(), items.begin(), items.end());
    }
    stack_.resize(begin);
  }

  bool container(const PickleOp& op) {
    switch (op.code) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '}':
        make_list(Kind::dict);
        return true;
      case ']':
        make_list(Kind::list);
        return true;
      case ')':
        make_small_tuple(0);
        return true;
      case 't':
        make_tuple(take_mark());
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        make_small_tuple(op.code - 0x84U);
        return true;
      case 's':
        need(2);
        add_items(stack_.size() - 2, Kind::dict);
        return true;
      case 'a':
        need(1);
        add_items(stack_.size() - 1, Kind::list);
        return true;
      case 'u':
        add_items(take_mark(), Kind::dict);
        return true;
      case 'e':
        add_items(take_mark(), Kind::list);
        return true;
      default:
        return false;
    }
  }

  void keep(std::uint64_t number) {
    if (survey_.recalled(number)) memo_[number] = top();
  }
  bool memory(const PickleOp& op) {
    switch (op.code) {
      case 'q':
      case 'r':
        keep(op.number);
        return true;
      case 0x94:
        keep(memoized_++);
        return true;
      case 'h':
      case 'j': {
        const auto found = memo_.find(op.number);
        if (found == memo_.end()) ops_.refuse("byte ", op.at, " recalls value ", op.number, ", which was never kept");
        stack_.push_back(found->second);
        return true;
      }
      default:
        return false;
    }
  }

  void object(const PickleOp& op) {
    if (op.code == 'c') {
      std::string name(op.text);
      std::replace(name.begin(), name.end(), '\n', ' ');
      push_global(name);
    } else if (op.code == 0x93) {
      const auto name = pop(), module = pop();
      push_global(text(PackedPickle::words(module), " ", PackedPickle::words(name)));
    } else if (op.code == 'b') {
      give_state(pop());
    } else if (op.code == 'Q') {
      ops_.refuse("byte ", op.at, " names something outside of it");
    } else {
      const auto arguments = pop();
      call(pop(), arguments);
    }
  }
  void push_global(const std::string& name) {
    if (!allowed_(name))
      ops_.refuse("it names ", name, ", which no checkpoint of this kind needs; nothing of the file was executed");
    auto& known = into_.globals_;
    const auto found = std::find(known.begin(), known.end(), name);
    push(Kind::global, found - known.begin());
    if (found == known.end()) known.push_back(name);
  }
  void call(const Packed& callee, const Packed& arguments) {
    if (callee.kind != Kind::global) ops_.refuse("something is called that has no name");
    if (hollow_) return push(Kind::hollow);
    if (arguments.kind != Kind::tuple) ops_.refuse(into_.name(callee), " is called without a tuple");
    if (into_.name(callee) == "torch Size") {
      if (arguments.count != 1 || arguments.items->kind != Kind::tuple) ops_.refuse("a torch.Size without numbers");
      return stack_.push_back(*arguments.items);
    }
    push(Kind::object, static_cast<std::int64_t>(into_.objects_.size()));
    into_.objects_.push_back({callee, arguments});
  }
  void give_state(const Packed& state) {
    const auto& object = top();
    if (object.kind == Kind::object)
      into_.objects_[object.index].state = state;
    else if (object.kind != Kind::hollow)
      ops_.refuse("a state is given to something that is not an object");
  }

  PickleOps ops_;
  PackedPickle& into_;
  const std::function<bool(const std::string&)>& allowed_;
  packed::Survey survey_;
  bool hollow_ = false;
  std::uint64_t memoized_ = 0;
  std::vector<Packed> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Packed> memo_;
};

PackedPickle::PackedPickle(std::span<const std::byte> bytes, std::string speaker,
                           const std::function<bool(const std::string&)>& allowed, std::string_view left_out)
    : speaker_(std::move(speaker)) {
  root_ = PackedReader(bytes, *this, allowed, left_out).run();
}

std::string_view PackedPickle::words(const Value& value) {
  return value.kind == Value::Kind::words ? std::string_view(value.text, value.count) : std::string_view();
}

std::span<const PackedValue> PackedPickle::items(const Value& value) const {
  if (value.kind == Value::Kind::tuple) return {value.items, value.count};
  if (value.kind == Value::Kind::list || value.kind == Value::Kind::dict) return lists_[value.index];
  return {};
}

const PackedValue* PackedPickle::find(const Value& dict, std::string_view key) const {
  if (dict.kind != Value::Kind::dict) return nullptr;
  const auto all = items(dict);
  for (std::size_t i = 0; i + 1 < all.size(); i += 2)
    if (words(all[i]) == key) return &all[i + 1];
  return nullptr;
}

std::string_view PackedPickle::name(const Value& value) const {
  if (value.kind == Value::Kind::global) return globals_[value.index];
  return value.kind == Value::Kind::object ? name(objects_[value.index].callee) : std::string_view();
}

const PackedValue& PackedPickle::state(const Value& object) const {
  static const Value none{};
  return object.kind == Value::Kind::object ? objects_[object.index].state : none;
}

void PackedPickle::refuse(const std::string& message) const { throw ConfigError(text(speaker_, ": ", message)); }

}  // namespace tessera::torch
