#pragma once
#include "emu.h"
constexpr int WARP = 32, EDGE = 16, TILE = 8;
