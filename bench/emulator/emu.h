#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <random>
#include <algorithm>
#define __device__
#define __global__
#define __launch_bounds__(...)
struct uint2{unsigned x,y;}; struct uint4{unsigned x,y,z,w;}; struct float2{float x=0,y=0;}; struct float4{float x,y,z,w;};
inline uint2 make_uint2(unsigned a,unsigned b){return {a,b};} inline uint4 make_uint4(unsigned a,unsigned b,unsigned c,unsigned d){return {a,b,c,d};}
inline float4 make_float4(float a,float b,float c,float d){return {a,b,c,d};}
struct Idx{int x,y,z;}; extern Idx threadIdx, blockIdx;
inline float __uint_as_float(unsigned u){float f;memcpy(&f,&u,4);return f;} inline unsigned __float_as_uint(float f){unsigned u;memcpy(&u,&f,4);return u;}
inline float __fdividef(float a,float b){return a/b;}
inline int __ffs(unsigned v){return __builtin_ffs(v);}
template<class T>T __ldg(const T*p){return *p;}
using std::min;
// engine
using Barrier=unsigned long long;
extern char* block_shared(int rank);
extern int cur_rank; 
uint64_t collective(int kind, uint64_t a, int b, void* mma);
void block_wait(Barrier*,int parity); void named(int id,int n); void tell(int id,int n); void cluster_sync();
struct BarState{int pending; long tx; int phase; int nextarr;};
static_assert(sizeof(Barrier)==8);
struct BB{int16_t pending; int16_t phase; int32_t tx;}; static_assert(sizeof(BB)==8);
void check_phase(BB&);
inline unsigned shared_address(const void*p){return (unsigned)((const char*)p-block_shared(cur_rank));}
inline unsigned address_in(unsigned own,int rank){return own|(unsigned)rank<<24;}
inline void* resolve(unsigned a){return block_shared(a>>24)+(a&0xffffff);}
inline void make_barrier(Barrier&b){BB&s=(BB&)b;s.pending=1;s.phase=0;s.tx=0;}
inline void expect_bytes(Barrier&b,int bytes){BB&s=(BB&)b;s.tx+=bytes;s.pending--;check_phase(s);}
inline void publish_barriers(){}
inline void wait_for(Barrier&b,int parity){block_wait(&b,parity);}
void post(unsigned,unsigned,unsigned,unsigned);
inline void send(unsigned a,unsigned bar,uint2 v){post(a,bar,v.x,v.y);}
inline void store_in(unsigned a,double v){memcpy(resolve(a),&v,8);}
inline void wait_for_cluster(){cluster_sync();}
inline void wait_for_warps(int id,int n){named(id,n);}
inline void tell_warps(int id,int n){tell(id,n);}
inline int rank_in_cluster(){return cur_rank;}
inline uint4 load_early(const uint4*p){return *p;}
inline void prefetch(const void*p,int n){ volatile char c=((const char*)p)[0]+((const char*)p)[n-1];(void)c;}
struct MMA{float*c;const unsigned*a;unsigned b0,b1;};
inline void multiply_add(float(&c)[4],const unsigned(&a)[4],unsigned b0,unsigned b1){MMA m{c,a,b0,b1};collective(2,0,0,&m);}
template<class T>T __shfl_xor_sync(unsigned,T v,int x){uint64_t b=0;memcpy(&b,&v,sizeof v);b=collective(0,b,x,nullptr);memcpy(&v,&b,sizeof v);return v;}
inline unsigned __ballot_sync(unsigned,bool p){return collective(1,p,0,nullptr);}
struct Halves{unsigned high,low;};
inline unsigned pk(float a,float b){_Float16 h[2]={(_Float16)a,(_Float16)b};unsigned u;memcpy(&u,h,4);return u;}
inline float un(unsigned u,int i){_Float16 h[2];memcpy(h,&u,4);return (float)h[i];}
inline Halves halves_of(float a,float b){Halves h;h.high=pk(a,b);h.low=pk(a-un(h.high,0),b-un(h.high,1));return h;}
