// SPDX-License-Identifier: Apache-2.0
// The message `tensorflow.Example`: named lists of byte strings, float32 or int64, in protobuf's wire format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndd/python_interface.h"
#include "readers/record_request.h"

namespace ndd {

struct Feature {
  NDD_PLAIN_ENUM("tfrecord.Type", Type, int, int64, string, float32);  // DALI uses the same numbers

  std::string name;
  Type type;
  int64_t count;        // number of elements; negative: any number of rows
  int64_t row;          // elements per row
  std::string missing;  // elements to use if the feature is absent; empty for rows
};

// Finds the features in the message [begin, end) of a record; long strings become ranges. Throws Error for a damaged message or another
// type or count.
void parse_example(RecordBytes& record, int64_t begin, int64_t end, const std::vector<Feature>& features, std::vector<RecordPart>& parts);

}  // namespace ndd
