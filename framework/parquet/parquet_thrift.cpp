#include "framework/parquet/parquet_thrift.h"

namespace tessera::parquet {
namespace {

constexpr int deepest_thrift = 32;  // Parquet's own structures nest 8 deep

}  // namespace

void ThriftReader::enter() {
  if (++depth_ > deepest_thrift) throw ConfigError(text("its structures nest more than ", deepest_thrift, " deep"));
}

std::uint8_t ThriftReader::byte() {
  if (at_ >= bytes_.size()) throw ThriftEnd("its header ends too early");
  return std::to_integer<std::uint8_t>(bytes_[at_++]);
}

void ThriftReader::advance(std::uint64_t count) {
  if (count > bytes_.size() - at_) throw ThriftEnd("its header ends too early");
  at_ += static_cast<std::size_t>(count);
}

std::uint64_t ThriftReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto next = byte();
    value |= static_cast<std::uint64_t>(next & 0x7FU) << shift;
    if (next < 0x80) return value;
  }
  throw ConfigError("a number of its header is longer than 64 bits");
}

std::int64_t ThriftReader::zigzag() {
  const auto value = varint();
  return static_cast<std::int64_t>((value >> 1U) ^ (~(value & 1U) + 1));
}

bool ThriftReader::next_field(Field& field) {
  const auto head = byte();
  if (head == 0) return false;
  const auto type = head & 0x0FU;
  if (type < 1 || type > 12) throw ConfigError(text("its header has a value of the unknown Thrift type ", type));
  const auto step = head >> 4U;
  const auto id = step != 0 ? field.id + step : zigzag();
  if (id < 0 || id > INT16_MAX) throw ConfigError(text("its header has the field number ", id));
  field = {static_cast<int>(id), static_cast<Type>(type)};
  return true;
}

void ThriftReader::expect(const Field& field, Type type) const {
  if (field.type != type)
    throw ConfigError(text("field ", field.id, " of its header has Thrift type ", static_cast<int>(field.type),
                           "; expected ", static_cast<int>(type)));
}

std::size_t ThriftReader::begin_list(const Field& field, Type element) {
  expect(field, Type::list);
  const auto head = byte();
  auto count = static_cast<std::uint64_t>(head >> 4U);
  if (count == 15) count = varint();
  if (count > bytes_.size() - at_) throw ThriftEnd("its header ends too early");  // each element has a byte or more
  if (count > 0 && static_cast<Type>(head & 0x0FU) != element)
    throw ConfigError(text("the list in field ", field.id, " of its header has elements of Thrift type ", head & 0x0FU,
                           "; expected ", static_cast<int>(element)));
  return static_cast<std::size_t>(count);
}

bool ThriftReader::boolean(const Field& field) {
  if (field.type != Type::boolean_false) expect(field, Type::boolean_true);
  return field.type == Type::boolean_true;
}

std::int64_t ThriftReader::integer(const Field& field) {
  if (field.type == Type::int8) return static_cast<std::int8_t>(byte());
  if (field.type != Type::int16 && field.type != Type::int32) expect(field, Type::int64);
  return zigzag();
}

std::int64_t ThriftReader::integer(const Field& field, std::int64_t low, std::int64_t high) {
  const auto value = integer(field);
  if (value < low || value > high)
    throw ConfigError(
        text("field ", field.id, " of its header is ", value, "; expected a number from ", low, " to ", high));
  return value;
}

std::string_view ThriftReader::binary(const Field& field) {
  expect(field, Type::binary);
  return binary();
}

std::string_view ThriftReader::binary() {
  const auto size = varint();
  const auto begin = at_;
  advance(size);
  return {reinterpret_cast<const char*>(bytes_.data()) + begin, static_cast<std::size_t>(size)};
}

void ThriftReader::skip(Type type) {
  switch (type) {
    case Type::boolean_true:
    case Type::boolean_false:
      return;
    case Type::int8:
      return advance(1);
    case Type::int16:
    case Type::int32:
    case Type::int64:
      (void)varint();
      return;
    case Type::float64:
      return advance(8);
    case Type::binary:
      return advance(varint());
    case Type::structure:
      return structure([](const Field&) { return false; });
    case Type::list:
    case Type::set: {
      const auto head = byte();
      auto count = static_cast<std::uint64_t>(head >> 4U);
      if (count == 15) count = varint();
      const auto element = static_cast<Type>(head & 0x0FU);
      if (count > bytes_.size() - at_) throw ThriftEnd("its header ends too early");
      enter();
      for (; count > 0; --count) element <= Type::boolean_false ? advance(1) : skip(element);
      --depth_;
      return;
    }
    case Type::map: {
      const auto count = varint();
      if (count == 0) return;
      if (count > bytes_.size() - at_) throw ThriftEnd("its header ends too early");
      const auto head = byte();
      enter();
      for (auto left = count; left > 0; --left)
        for (const auto part : {static_cast<unsigned>(head) >> 4U, head & 0x0FU})
          part <= 2 ? advance(1) : skip(static_cast<Type>(part));
      --depth_;
      return;
    }
  }
  throw ConfigError(text("its header has a value of the unknown Thrift type ", static_cast<int>(type)));
}

}  // namespace tessera::parquet
