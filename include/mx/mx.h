// Everything that is public. Only includes.
#pragma once

#include "mx/engine.h"
