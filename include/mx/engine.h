// The engine alone: link mx::engine.
#pragma once

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/device/registry.h"
#include "engine/engine.h"
