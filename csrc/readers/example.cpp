// SPDX-License-Identifier: Apache-2.0
// A record is walked once, and the key of each entry is compared with the requested names; the values of others are skipped by their
// length.
#include "readers/example.h"

#include <cstring>

#include "ndd/error.h"
#include "readers/protobuf.h"

namespace ndd {
namespace {

constexpr const char* kDamaged = "the Example is damaged: ";

[[noreturn]] void reject(const std::string& what) { fail(kDamaged, what); }

constexpr const char* kTypeNames[] = {"int64", "string", "float32"};
constexpr Feature::Type kLists[] = {Feature::string, Feature::float32, Feature::int64};  // fields 1, 2, 3 of a feature

// The value of a feature in an Example.
struct Value {
  bool present = false;
  int64_t count = 0;    // numbers, or strings
  std::string numbers;  // int64 or float32
  ByteRange text;           // the first string

  void add(const void* number, size_t bytes) {
    numbers.append(static_cast<const char*>(number), bytes);
    ++count;
  }
};

// BytesList, FloatList and Int64List have their values in field 1: one per field, or packed into one field.
void parse_list(RecordBytes& record, ByteRange list, Feature::Type type, Value& found) {
  for (MessageFields field(record, list, kDamaged); field.next();) {
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
      for (MessageFields packed(record, field.value, kDamaged); !packed.empty();) {
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
Value parse_feature(RecordBytes& record, ByteRange message, const Feature& feature) {
  Value found;
  for (MessageFields field(record, message, kDamaged); field.next();) {
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
  std::vector<ByteRange> found(features.size());
  // Example.features (field 1) is Features, whose field 1 is a map: entries with the key in field 1 and the Feature in field 2.
  for (MessageFields example(record, {begin, end}, kDamaged); example.next();) {
    if (example.number != 1 || example.wire != 2) continue;
    for (MessageFields map(record, example.value, kDamaged); map.next();) {
      if (map.number != 1 || map.wire != 2) continue;
      // Absent fields of an entry are empty, as in protobuf.
      ByteRange key, value;
      for (MessageFields entry(record, map.value, kDamaged); entry.next();) {
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
    } else {
      parts[k].add_slice(record, value.text.begin, value.text.length());
    }
  }
}

}  // namespace ndd
