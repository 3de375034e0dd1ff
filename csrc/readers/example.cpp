// SPDX-License-Identifier: Apache-2.0
#include "readers/example.h"

#include <cstring>

#include "ndd/error.h"

namespace ndd {
namespace {

constexpr int64_t kMaxCopiedBytes = 1024;  // longer strings are not copied while the record is parsed, but read into the batch later

[[noreturn]] void reject(const std::string& what) { fail("the Example is damaged: ", what); }

struct Range {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end - begin; }
};

// Iterates over the fields of a message in protobuf's wire format. Nothing outside the range is read.
// A field is a key (number << 3 | wire type) and a value: 0 varint, 1 and 5 fixed 8 and 4 bytes, 2 a length and bytes.
class Fields {
 public:
  Fields(RecordBytes& record, Range range) : record_(record), rest_(range) {}

  bool empty() const { return rest_.begin == rest_.end; }

  bool next() {
    if (empty()) return false;
    const uint64_t key = varint();
    number = key >> 3;
    wire = static_cast<int>(key & 7);
    switch (wire) {
      case 0: scalar = varint(); break;
      case 1: value = take(8); break;
      case 2: value = take(varint()); break;
      case 5: value = take(4); break;
      // 3 and 4 were groups, which proto3 does not have.
      default: reject("a field of wire type " + std::to_string(wire));
    }
    if (number == 0) reject("a field without a number");
    return true;
  }

  // At most 10 bytes; the last one holds a single bit of the 64.
  uint64_t varint() {
    const auto bytes = record_.at(rest_.begin, std::min<int64_t>(10, rest_.length()));
    uint64_t result = 0;
    for (size_t k = 0; k < bytes.size(); ++k) {
      const auto byte = static_cast<unsigned char>(bytes[k]);
      if (k < 9 || byte < 2) result |= static_cast<uint64_t>(byte & 127) << (7 * k);
      if (byte < 128) {
        rest_.begin += static_cast<int64_t>(k) + 1;
        return result;
      }
    }
    reject(bytes.size() == 10 ? "a number of more than 10 bytes" : "it ends inside of a number");
  }

  // The current field, valid after next(): `scalar` for varints, `value` for the other wire types.
  uint64_t number = 0, scalar = 0;
  int wire = 0;
  Range value;

 private:
  // Compared without a sum: the length comes from the file.
  Range take(uint64_t bytes) {
    if (bytes > static_cast<uint64_t>(rest_.length())) {
      reject("a field of " + std::to_string(bytes) + " bytes where " + std::to_string(rest_.length()) + " are left");
    }
    const Range taken{rest_.begin, rest_.begin + static_cast<int64_t>(bytes)};
    rest_.begin = taken.end;
    return taken;
  }

  RecordBytes& record_;
  Range rest_;
};

constexpr const char* kTypeNames[] = {"int64", "string", "float32"};
constexpr Feature::Type kLists[] = {Feature::string, Feature::float32, Feature::int64};  // fields 1, 2, 3 of a feature

// The value of a feature in an Example.
struct Value {
  bool present = false;
  int64_t count = 0;    // numbers, or strings
  std::string numbers;  // int64 or float32
  Range text;           // the first string

  void add(const void* number, size_t bytes) {
    numbers.append(static_cast<const char*>(number), bytes);
    ++count;
  }
};

// BytesList, FloatList and Int64List have their values in field 1: one per field, or packed into one field.
void parse_list(RecordBytes& record, Range list, Feature::Type type, Value& found) {
  for (Fields field(record, list); field.next();) {
    if (field.number != 1) continue;
    if (type == Feature::string) {
      if (field.wire != 2) reject("a list of strings with something else in it");
      if (found.count++ == 0) found.text = field.value;
    } else if (field.wire == 2 && type == Feature::float32) {
      if (field.value.length() % 4) reject("float32 numbers that take " + std::to_string(field.value.length()) + " bytes");
      found.numbers.append(record.at(field.value.begin, field.value.length()));
      found.count += field.value.length() / 4;
      // Packed varints.
    } else if (field.wire == 2) {
      for (Fields packed(record, field.value); !packed.empty();) {
        const uint64_t number = packed.varint();
        found.add(&number, 8);
      }
    } else if (field.wire == 5 && type == Feature::float32) {
      found.numbers.append(record.at(field.value.begin, 4));
      ++found.count;
    } else if (field.wire == 0 && type == Feature::int64) {
      found.add(&field.scalar, 8);
    } else {
      reject("a list of numbers with something else in it");
    }
  }
}

// A Feature is a oneof of three lists; as in protobuf, lists of the same kind that occur twice are concatenated.
Value parse_feature(RecordBytes& record, Range message, const Feature& feature) {
  Value found;
  for (Fields field(record, message); field.next();) {
    if (field.number < 1 || field.number > 3 || field.wire != 2) continue;
    const Feature::Type type = kLists[field.number - 1];
    if (type != feature.type) {
      fail("feature \"", feature.name, "\" is a list of ", kTypeNames[type], ", not of ", kTypeNames[feature.type]);
    }
    found.present = true;
    parse_list(record, field.value, type, found);
  }
  return found;
}

// Rejects a number of elements that does not fit what the reader was asked for.
void check(const Value& value, const Feature& feature) {
  const auto reject_value = [&](const auto&... what) { fail("feature \"", feature.name, "\" has ", what...); };
  if (feature.type == Feature::string) {
    if (value.count != 1) reject_value(value.count, " strings, not one");
  } else if (feature.count >= 0) {
    if (value.count != feature.count) reject_value(value.count, " elements, not ", feature.count);
  } else if (value.count % feature.row != 0) {
    reject_value(value.count, " elements, not a multiple of ", feature.row);
  }
}

}  // namespace

void parse_example(RecordBytes& record, int64_t begin, int64_t end, const std::vector<Feature>& features, std::vector<RecordPart>& parts) {
  // As in protobuf's maps, the last entry with a key counts.
  std::vector<Range> found(features.size());
  // Example.features (field 1) is Features, whose field 1 is a map: entries with the key in field 1 and the Feature in field 2.
  for (Fields example(record, {begin, end}); example.next();) {
    if (example.number != 1 || example.wire != 2) continue;
    for (Fields map(record, example.value); map.next();) {
      if (map.number != 1 || map.wire != 2) continue;
      // Absent fields of an entry are empty, as in protobuf.
      Range key, value;
      for (Fields entry(record, map.value); entry.next();) {
        if (entry.wire == 2 && entry.number == 1) key = entry.value;
        if (entry.wire == 2 && entry.number == 2) value = entry.value;
      }
      for (size_t k = 0; k < features.size(); ++k) {
        // The lengths first: a comparison of bytes may read from the file.
        const bool same = key.length() == static_cast<int64_t>(features[k].name.size()) && record.at(key.begin, key.length()) == features[k].name;
        if (same) found[k] = value;
      }
    }
  }
  for (size_t k = 0; k < features.size(); ++k) {
    Value value = parse_feature(record, found[k], features[k]);
    if (!value.present) {
      // What the caller gave for records without this feature.
      parts[k].add(features[k].missing);
      continue;
    }
    check(value, features[k]);
    if (features[k].type != Feature::string) {
      parts[k].add(std::move(value.numbers));
    } else if (value.text.length() <= kMaxCopiedBytes) {
      parts[k].add(std::string(record.at(value.text.begin, value.text.length())));
    } else {
      parts[k].add_range(value.text.begin, value.text.length());
    }
  }
}

}  // namespace ndd
