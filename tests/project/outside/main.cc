// Both spellings of the header paths must work, and the functions that they declare must link.
#include <mx/engine.h>

#include <cstdio>

#include "engine/engine.h"

int main() {
  mx::Engine engine;
  int value = 0;
  const mx::Var v = engine.new_var();
  engine.push([&] { value = 41; }, {.writes = {v}, .name = "set"});
  engine.push([&] { ++value; }, {.updates = {v}, .name = "increment"});
  engine.wait(v);
  engine.delete_var(v);
  std::printf("outside: %d\n", value);
  return value == 42 ? 0 : 1;
}
