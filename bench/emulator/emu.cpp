#include "emu.h"
#include <ucontext.h>
#define __shared__ 
#include "pc.inc"
#include "ng.inc"
Idx threadIdx, blockIdx; int cur_rank;
static const int SH=65536, ST=65536;
static std::vector<char> sh; char* block_shared(int r){return sh.data()+r*SH;}
enum S{READY,COLL,MB,NAMED,CL,DONE};
struct T{ucontext_t c;S s;int kind;uint64_t a;int b;MMA*m;uint64_t r;BB*bar;int par;int id,n;};
static std::vector<T> th; static ucontext_t sched; static T* cur; static int TPB;
static std::mt19937 rng; 
struct Msg{unsigned a,bar,x,y;}; static std::vector<Msg> q; static int delivered;
void check_phase(BB&s){ if(s.pending==0&&s.tx==0){s.phase++;s.pending=1;} if(s.pending<0){printf("over-armed\n");abort();} }
void post(unsigned a,unsigned bar,unsigned x,unsigned y){q.push_back({a,bar,x,y});}
static void deliver(size_t i){Msg m=q[i];q[i]=q.back();q.pop_back();uint2 v{m.x,m.y};memcpy(resolve(m.a),&v,8);BB&b=*(BB*)resolve(m.bar);b.tx-=8;check_phase(b);}
static void yield_(){swapcontext(&cur->c,&sched);}
uint64_t collective(int k,uint64_t a,int b,void*m){cur->s=COLL;cur->kind=k;cur->a=a;cur->b=b;cur->m=(MMA*)m;T*me=cur;yield_();return me->r;}
void block_wait(Barrier*b,int p){BB*s=(BB*)b;T*me=cur; if((s->phase&1)!=p)return; me->s=MB;me->bar=s;me->par=p;yield_();}
static int told[16][4];
void tell(int id,int n){told[cur_rank][id]++;(void)n;}
void named(int id,int n){cur->s=NAMED;cur->id=id;cur->n=n;yield_();}
void cluster_sync(){cur->s=CL;yield_();}
static void (*body)(); static void entry(){body();cur->s=DONE;swapcontext(&cur->c,&sched);}
static void run_coll(T*w){
  int k=w[0].kind; for(int i=0;i<32;i++) if(w[i].s!=COLL||w[i].kind!=k){printf("diverged\n");abort();}
  if(k==0) for(int i=0;i<32;i++) w[i].r=w[i^w[i].b].a;
  if(k==1){unsigned v=0;for(int i=0;i<32;i++)if(w[i].a)v|=1u<<i;for(int i=0;i<32;i++)w[i].r=v;}
  if(k==2){ float A[16][16],B[16][8];
    for(int l=0;l<32;l++){int g=l/4,t=l%4;MMA&m=*w[l].m;for(int e=0;e<2;e++){
      A[g][2*t+e]=un(m.a[0],e);A[g+8][2*t+e]=un(m.a[1],e);A[g][2*t+8+e]=un(m.a[2],e);A[g+8][2*t+8+e]=un(m.a[3],e);
      B[2*t+e][g]=un(m.b0,e);B[2*t+8+e][g]=un(m.b1,e);}}
    for(int l=0;l<32;l++){int g=l/4,t=l%4;MMA&m=*w[l].m;for(int i=0;i<4;i++){int r=g+(i/2)*8,c=2*t+i%2;double s=m.c[i];for(int k2=0;k2<16;k2++)s+=(double)A[r][k2]*B[k2][c];m.c[i]=(float)s;}}}
  for(int i=0;i<32;i++)w[i].s=READY;
}
static bool launch(int blocks,int tpb,void(*f)(),int seed,bool cluster){
  static std::vector<char> stacks; TPB=tpb; body=f; rng.seed(seed); sh.assign(blocks*SH,(char)0xff); th.assign(blocks*tpb,T{}); stacks.resize((size_t)blocks*tpb*ST); q.clear(); memset(told,0,sizeof told);
  for(size_t i=0;i<th.size();i++){T&t=th[i];t.s=READY;getcontext(&t.c);t.c.uc_stack.ss_sp=stacks.data()+i*ST;t.c.uc_stack.ss_size=ST;t.c.uc_link=&sched;makecontext(&t.c,entry,0);}
  int warps=blocks*tpb/32; std::vector<int> slow(warps); long idle=0;
  std::vector<double> weight(warps); for(auto&x:weight) x=std::pow(10.0,-3.0*(rng()%1000)/1000.0); 
  std::vector<int> ord(warps); for(int i=0;i<warps;i++)ord[i]=i;
  while(true){
    bool any=false,all=true; std::shuffle(ord.begin(),ord.end(),rng);
    for(int wi:ord){T*w=&th[wi*32]; bool done=true; for(int i=0;i<32;i++)done&=w[i].s==DONE; if(done)continue; all=false;
      if(rng()%100000>weight[wi]*100000+5000) {any=true;continue;}
      int rank=wi*32/tpb;
      for(int spin=0;spin<40;spin++){ bool ran=false;
        for(int i=0;i<32;i++){T&t=w[i]; if(t.s==MB&&(t.bar->phase&1)!=t.par)t.s=READY;
          if(t.s==READY){ran=any=true;cur=&t;cur_rank=rank;threadIdx={(int)((wi*32+i)%tpb),0,0};blockIdx={rank,0,0};swapcontext(&sched,&t.c);}}
        bool coll=true;for(int i=0;i<32;i++)coll&=w[i].s==COLL; if(coll){run_coll(w);any=true;continue;}
        if(!ran)break; }
      // named barriers
      for(int id=1;id<4;id++){int n=0,want=-1;for(int i=0;i<tpb;i++){T&t=th[rank*tpb+i];if(t.s==NAMED&&t.id==id){n++;want=t.n;}} if(n+told[rank%16][id]>want && want>=0){printf("barrier %d over-full\n",id);abort();} if(want>=0 && n+told[rank%16][id]==want){any=true;told[rank%16][id]=0;for(int i=0;i<tpb;i++){T&t=th[rank*tpb+i];if(t.s==NAMED&&t.id==id)t.s=READY;}}}
    }
    if(all)break;
    size_t n=q.size()? rng()%(q.size()+1):0; if(q.size()&&!any)n=q.size(); for(size_t i=0;i<n;i++){deliver(rng()%q.size());any=true;}
    bool cl=true;for(auto&t:th)cl&=t.s==CL||t.s==DONE; if(cl){ bool some=false; for(auto&t:th)if(t.s==CL){t.s=READY;some=true;} any|=some;}
    if(!any){ if(++idle>3){int h[6]={};for(auto&t:th)h[t.s]++;printf("deadlock: ready %d coll %d mb %d named %d cl %d done %d queue %zu\n",h[0],h[1],h[2],h[3],h[4],h[5],q.size());return false;}} else idle=0;
  }
  if(q.size()){printf("messages left %zu\n",q.size());return false;}
  return true;
}
static const uint4 *gi,*gf,*gg;static uint4*go;static const int*gl;static float*gw,*gb;static double*gt;static int a_[6];static float glr;static int gwt;
static void f1(){persistent_cluster(gi,gf,gl,gg,gw,gb,gt,a_[0],a_[1],a_[2],a_[3],a_[4],glr,gwt);}
static void f2(){neighbour_grams(gi,go,a_[1],a_[2]);}
extern "C" int run_cluster(const uint4*i,const uint4*f,const int*l,const uint4*g,float*w,float*b,double*t,int steps,int pairs,int tiles,int inputs,int classes,float lr,int wt,int seed){
  gi=i;gf=f;gl=l;gg=g;gw=w;gb=b;gt=t;a_[0]=steps;a_[1]=pairs;a_[2]=tiles;a_[3]=inputs;a_[4]=classes;glr=lr;gwt=wt; return launch(16,512,f1,seed,true);}
extern "C" int run_grams(const uint4*i,uint4*g,int steps,int pairs,int tiles,int seed){gi=i;go=g;a_[1]=pairs;a_[2]=tiles;return steps<2||launch(steps-1,256,f2,seed,false);}
