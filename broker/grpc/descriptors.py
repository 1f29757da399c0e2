"""The descriptors of Apache RocketMQ's gRPC protocol, `apache.rocketmq.v2`, release 2.1.2: definition.proto
and service.proto as serialized FileDescriptorProtos; and of gRPC's own services, `grpc.health.v1`, `grpc.reflection.v1`
and v1alpha. Made by packaging/grpc_descriptors.py from the packages rocketmq-python-client, grpcio-health-checking and
grpcio-reflection; not written by hand.

Of `apache.rocketmq.v2`: Licensed to the Apache Software Foundation (ASF) under one or more contributor license
agreements. See the NOTICE file distributed with this work for additional information regarding copyright ownership. The
ASF licenses this file to You under the Apache License, Version 2.0 (the "License"); you may not use this file except in
compliance with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0. Unless
required by applicable law or agreed to in writing, software distributed under the License is distributed on an "AS IS"
BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the License for the specific
language governing permissions and limitations under the License.

Of `grpc.health.v1` and `grpc.reflection`: Copyright 2015 and 2016 The gRPC Authors, under the same License.
"""

import base64
import zlib


def serialized(text: str) -> bytes:
    return zlib.decompress(base64.b85decode("".join(text.split())))


DEFINITION = r"""
c-oa&&5zsG5w|{8D~+_fT<(YEwPU+V>@?eA-E5M^O<WYD#9c9_NSdTJQ7(j5qSu5aQ4uL48}yteIrY%?)I$!vv_R1u3N)>OqIHw>J8=@XD9{#2d+4F)AJK
X5Q4;mByUtDfX5PG+-^~1GXam=DZn_;eaJ|k}x90^O&)2*4#w};7=QVCSLHm`hJKGx<4m|Im<y@f}`~90&0=Mn>LA~8&mp0B%Dm44O`p9U(0&d4`1x`<Tw
cB%iA0_;kAsHNYoqX(K?2C)r=eMTc-C}nv)Z%#nXLvUs$2*zA-56vIC+HpOUdwG9@~e<**I%{kLEyBzfln>Z@e-`yO|Rp00=M3>_v?+@-p!lTM0We~tY@W
>y2!N4r}!f9jlLgvZTB^&Ikb|XRxZu5QXFazjfengKR{%hgTul%fuDYe--LOZk9v!`pWQyQ#jxEPV7pZcvE?sA0^<!MIYtk$Yxi4$+ikf{kGdQ$T!ZB)2l
>Y#*>PSC@a4p@77I^9+HicY-)lJh2JpS`x812@T_6-Js~J9r2JtA&*K4qB_V@ip&+QT`QU_DVe+lLSuj@9#aL>(xa`@KOsVc~BKX!EGjH<103Fd`nll(=T
y5;%7$i=SL3#hTVLI*NZr`h$~PT=!TLdr+O?Lm!xVb)8bRg)_6Tac-<1II^`1je(++``64i9PSO(;Gs?yaI^3P39B-705UPpTdHBWM<h8lnVceL9T-4>j%
z_zSDO;AIQ<Sw*k6NukA9x6GykIKGebzPVLi}@=5yI#w`6X>aW9Uz0q*Gf!${Q+JqDQ{2W5JxP4*P%`h;+3WYMHO6~zt(ZjF_)1+*|K^mov+kU?t*5=>Sz
?p|WGKb#tFyz2>d{j#W^#hiY@~JmsF_NX*&LK-}hBj8{HX@dwnY#kneXn_FH|cA~K@fWW6fDpSPN(5D-Od5VPC__0JH<?ge+H>80$4sp@0^4ergL%M>vil
Qf9K~z|0Y}A8ffs#kfC>I&!lOLS78aMqvu5IWKObEjuHG2F?N$$18VJg;G0g%z2o!_BL=f48jKTzXJN7DG#q3U`&PZvY&rQH%~pa4G0m@#`X||0p!IwPa_
j`@&Ub?RBAzD7NuvB5@NVah>%03c#~#eD{L%^JTAm|!9|3L{LO6c%9C@&uBH|5L7-Z|9=k>e!W$NR6D8q?>+}ZFt0U=+W%F;xp!ey`5#kg?dpi;-LH^`ed
M(okIhHkE$<YtE0E5dTqsW<JGgFg0bibQ^uUVU_Cg`%=Tbt#RMffzXr&~gLJJtdSi>TQ+?)*#*Oxn9o=4)g0Y_#7UKDM;GbMIsNJJyA8{8m!pUxfhpV$sW
(DxC9G!G;{RobiTwDShgoqA#$*2k0pSfjKMBG0gu}c2e!Bhygh}ZxByvu1dN!4j6Hw@=jGA_mi$7Lk|(KzankE?m=C-6^D%fCmij(A)*Vt=IE$_vLl9e4y
fPv`Hl4o#%RXhrsIA1&b9ahDkuV9nQ69`~JOeAUUdciNSv5ogfw@y}^~0s%x%kysK>`qPwj6ZYxGeF{j=G6eFoWdcF|kp|3j(CfpdR#n+?<j~q=RXZpSix
FoL_?Z@To8*F2t(>PWg1J-Z|)#^VrdBt%N$n3|7!+b0x&oZPkODUauXF4Ll)~NLPR)ed^muNSjzNNcTQ6ZnlBjTPLtjnsP;|M%bP)?p4T<3G4edT@J#f>G
%bLQR_7v7Hl!Zt7O3r6MtcL?G5*E#=XzNQqRHs_yKKfuRoZD$B-1|;iqxs=<l~&|JGm_W{+4ohFZ9uW0-zqx1<B{h?<D*pm=i=fHn&z3gKb%aDCQ2OgyeO
Z44CKFn#n~uTTv!1M?V%jb4e1kh3G{qhuCM3MIU8tSMbi09fb(jDp6MCq*g25BK%sIbjXE20xDIs^R0(A1-*0z#4X&+r)2@u@#KwI$iil0&-Eja2cIrBkU
n~h^<W5U?G~B0To?3DK(55mLYl5z3DM`SVdnT9~?Lw?l_29(746INz#cE7Vc`x>l_dyTL{#!{^m}qKU%nt!D&k4QKyk;yr52tYK~RuMOYzljtHN5F;6wfP
9UZs6%Lzun6pU`bY@MvE}n)pdzQoE2ITD{d=b}S)t=!&p#~{dfMk!yMj&}g<GvXAhIl9nAh{EB0QT@+;b-_+q0#B9v10fdq(Ww3g!K3<lhGSnAw!%(zDtE
GSe&k4^dzXeEt`F2kdqb2jP}7KJ1jf~sqk|@4M{~XE$$RQ4~dGbaxwZtc!`UXVa&|aV&1I5nl&2fq&{2y@DsXV8G>pGMN8IH+mK96snVZS)zqb;ydz5`d;
uU;)G8I(;>b5Z+Rzk56pGim_~whS95HROW?Ki|)T%~NnlQ5r3*mWDktLN_I}I!0ktrE_l3^FiQfL?=A5|N$u1iKmHqB}05C~OMB{YV=3`r<)aXtfcFB-BX
aS47AfE?QF@8st50Fi%KISZ$EWW~aVt(rdRFXCwly9`+KhJs#MurU6`dmc7~QVD@GZ4+IuNYl>A`kkklbNK74=-d)yOIk&cRa+G*=;CG{veD0!bC9o~L19
;#<rL;Z)r^XuFq=E_j>ZBmNs3UzfYE#;sa%p)3W<G=<W4ta4UwpEsm)!0$VVX}QIdBh)0*`tnlBo~r?$f)D?NixqFJ*nJc<7QAO<iRyu=dA?<`By1+7#qN
(LIkiqNZO*)D3TS*_qv9Ls*mlq<R-jSdq`Pf<okNm67aDtr9?9G{0(dOm3+wRsKF!!JnGlGLJBlGWX52jvnvPcWhg@4hVSnED@PAxXEQRp9XAbfV+hb?)u
&$IvmZQdKOOypDx|KTYnP|B_g<BG#cH-KZkU+^^n^V_C1tiX!a_iY*k2q=<A)#=iLVy99@Yfy~l$xyaqa!*j4cI2;6K?;2WF=YE6IGq5s{4hsnD_r2Mo>r
#z-A4O+jZBoQcet^OPoSPJ4`mh(R8a43S&?$9KP~?&wWfQr?{SKvh;3qAh<o77K0A~i0um`1=bka(sZ2vGGEj}QdvWSpcGWN_L$Nk3AmytYbO!%j9pA4xe
$+~5i1+}C|+@DeU1Uxzw4dS_@$VJP3QMSsoa=8yt^*rRODw@!CRrzJ9WJfBS`v~QyVR>Mxs2N68x3C=Uv$#WDnI&B|Q1bD3)^%i3Qi9a)Pf)fBivyXqvtv
pY_vtu>w6<A6JU|H#xvDButui(>y2t(C=W$Yix=^c-r-$#p@e9H`nH|j#<r0=R_dj-^YL>mDRaNx)?pQD*!N(|AgC+WA<oJ`j6rAxgjL1K|OFdyxM9v>Db
733M$hE4)efCTGJUXsu*d>;x*@|H7O5B5cG@ApzM6FbdNdIz=qBACyDmwP=U+>YX*GcZwl1xi-N01c+<DC!bTf|C5P-}yhG`a75M5}Uyv3;YeSpwE&QIbk
{^Sh{U87?w{sfuRNz{(<)C-lCDdY9nBAjmQfAcP31LMfRM@BeY1cGyHM%2HJ4pZ8f+sMsJX7Jy_Jn!(+FJwY2_a2ifeCj1zM2z^<gunT(_wScX|eS+r*Jv
pT0NJ<2q{pq(7gl+KkmujPYyqUl)Z=-@M2HHipOc{TvMQNz<FVsM=Ohwp}W-9#qO+wsR<jJb8YX*7hy|)r1DSJel4f3JreH0;ND3W(-HW_O}zKE)Q@D_cQ
WfEZ;@Zdn1`|Lqt^T#nr4?jQ2KoHd3YG`SEIKP1Cu%TAek>&AQe7=P6sMvT3GHQ1<a+eKJql&aWM^5z`Hk`_($UVKRbMxe$N`}G<CYNTqVvWm?S*(dKNJx
l?QIP{8DhY<gWr>;VnuXoZ<u;qJuHYgY-Twu;P!R(<>dRz8l!(tfEDjC~siN(Xy@!Jwu4kA~tV*Iqhv@JmR7-3=2g^75PVbPdq~RL502xu*l~omKh^;&lH
ffBUlRTQ1P(fV8=V8YGjEU*Wjgr@{yB$6Db}aU{SnNk}USMj*Ky7b(KSjSap87xRl;CR
"""

SERVICE = r"""
c-qBU+iw(Q6z_Dq+wLh{%GYiw3sM}Rlp;&BNFazYEEg*Q=?#ns8K={)?S$ExVP>{a^i3a3e9#vYAAB&;#KgbA#P}ch=8G@>DJGuz=CX77W@mT3@C59h@7&
MtTo#zHskNsnv~F64V-O;nva(C-mZ3bMPU~rXuTeX`V;DOcJ<ljM+uP^2+Lr97hVH$o%_YBg)E2cJxn=qUlUsCK)z!`u(Sk#(ZEEeW8EuEI(Wh;sCugDP7
^bSs3MYhx@y4-wT9^77wT-r=P_hJNs&AQwsyp`VFnjO{@4?N0NPGb#D$_O%-KJy_N~o&SwtcBJ9+P!OK`uiD4YTDPDxt=xGYT%?n-jb@cRk8gmr%S8WF6J
@KMM>#2V*`zSGvpTXctc6R{|V#xuEWC&AF*N)_z~=6M#T{b&L6|OlF|sSh8-*iW?pG^8)+40wrU6+osO!2>!c3sxV<uMb<QFSJt;QI$Lzf#Ah%SvugmSz5
$~YO;JN{zQ!ev+b#YezzmD#HQQEq^cJ!hD2<SK$1>WcpF(})T%os|JDk#T03Tg|aXI7=_~|(BK}V4Ia{;PrRH5n~P2^o@bT1yd1QW5O_dS)H^W<$fw5@6m
wIur7wD22DFyCt@d5>=~;+r9@o3ER)qwGqy`hv1NERrigRDDmi)lH2`0S>Wb9B&+{dq7kVfT(`MCs-c(To7D-a@#Q^i|X{*Yzg0tk*hGR8TyW78k(l!pDu
JEKFp5haTHvRhmoV>(3a`Al{4m+#PTqH(X7Ihl-9F(7^)IaTyp}(r4A?Y7tHQt==`*Kz4x?P9wK!Z^@Hb!tsB4~{be9qR70`Wz7(RkAGBJ^85;q`@=&u3q
l%$BZsJimcujfYGxcC94n0BuJ(g=Dn(SkW2TABuO?9Z`6)}S&7C+{s&Nt%s0vzhd87Q|ysOY8oBS2Ni2C9VRq5;*Yk{#sk$0Z%CDC7lQ`~*l$VE<@yC5gy
qx*HnB<u8X}{+3}qldYgBY#2AFymg0Sc3TV>{`*L!-RL#7xXVY_XR|OFX1rg43{HyV6{xo4=Th=pn;}Ork*1@WX?h<{=Q^bSAc>y}Fu6=+%h{xI*!q_GaH
)rh*jW@!#c)f`zUie~h2L4OGqMe&YK}okVsb>p_=pk%nDLhYRcx0Vof%}HHr~%@^A-Sh7(;8b)-l2?=4N<Iso(**h}JQoEKMqnQ#nu9Jq>YyLTwZ(F_e7n
uq-NzH((}d{s3M)2gg<{95^<1Ele%^P<gW93cGH!T37&N0*bn!qsk0s#6>uQ-Nn##syN}Sl0o|cOeVP|NXQ%zhmlCOOCvEmy&!lM;da9`g}4sW52&SX@B4
+p*8n?SA3aPw2~#nq9ylefQsGtC16bGhEE6$;Mne$j5fLop3g)C6^MKfZWA7ObDs*4B+ncsxshji;!b2d1#Bjt@@6RH7oocj25mN)g^L=!FHk~ZN7!L3b&
KY($*j)E%u>Ci=k?b<FB~t@=EJJmV1waZa(qbWCl{Vfu&11uf7;>U;((-~N8Ge+csEZZPG5+*-kq;0#K}Io;;DqTG4<|)K5hW&Ki6^34;UV|iFq3dcz|$K
s7jpg4;k5xrt)OnDa1#j`jxmPkvi!g;cjWpZ%;_varFJJny$%*|E@zwHEw_WQkp08`tK=oH_y~@B@BF4ht(L0GQS|S-lSP`+U6{+{J^;A>I1I<HWBTmScY
}#O*aBYOD07j!2aV)xEr~u^<jmWp5VpxQjM{D6q<*fBF;q#6H%)*s$*01>e=gHe1I(cr)3Er>Fp!nDroEJ{wsROMu)_#%N#$<7#XdIQOBq{fDJQ<-*8)t%
T=Tzdja3-eaio!=j)|{?U!Y$1%`MrX_ZZDfjhWbl>9{fjpu%&Qe1|$O!5Z-%9EwODpsqUZ7-sJHUGOiXacfcv3O%~J2~$s9c78s%S*$Ai{%*k?mm|_w7%^
!;xv%?!i%bUqI!6m}6{ccF{R@tI2-9oq2%1Ko-dB~>CDjA9_t~*dPM7XKyzq*@4#Uy)eO+<;^19cg&1mns0wr%EV*D$OMIQg;<7@0if2}O6jzVvJuhV2C?
+#tSW`#Wo$Egrd3tp$X3KM>=8B9GND7mTX<-<KQyyCGI<}+<hLPd(P5^uvXzWe%*Pvf@=OnUJ}RA2Xgcp;AgI=@Sh?D~lQR#KbKBlENqhsZ-Hhbubawx8q
~p>`^VD&+kUj7QG@WIpS1AFr3%>0G){f(8c@2XwNSX?p6nfZExfXhUgFpb|g3k~108bo#1ZTkM525Va(@aqryF_;F92H~Dc--}}&(Zv~jkIXsao+-anz^I
h%Df!>DdZNhkDP~oReddTCa4rk(F9#-H$w9ganW6oGoTgWGj)>qh$`Sq2Y6ZrL&>gis6MS2*S&*`0Aoy2K|C_#lv{Qktxc<zagpYi;27K(Zd<?yD#cU1D^
QR|6H99j@C*q;e-IAiT2jqJ@eYXhxa=<7{rrK?8962w=d`)bKoBWKG(HMU_QHcpU*40K9OGqp24P=<0ohG|}RB<HyhpFM`umU@2>2yb2m&VN^EmhZ0mt#w
8CP7wYOgrA1VHIHsBpnK5REU`KA!r#HEz{m
"""

HEALTH = r"""
c-pN~O;5r=5Os@yZk3PaLhzzBCLGL`){F5bgrHFip$LhWrZ$_F(6qH(n(%kL>A`<!Vz*loFa$Yx+j%o@=Do=*Jh8*TG8|&M)RALF<}VzCKJ`(FC2<DDigW
?dT^e*8V$Fu+ZB8PJ%CH!bFrHeZ4o*SyQ2GF{wpJGfz84X63kwl7={!p7N~(g_`{NBHth3ght*1n(50BRXB*Nme_Mr7AT4j#~dUrU!*LoF@$P%^w$XEgbs
=;y^bh^fpl9Ot%%BMa~BbqsqzQEEbM>G9xc);}&<{;M;)z)SQt1PT%l&(j^MPrm0SOpTzxfxmT%^?-$W7D0Jx{!pTdcMPgZiH)~egjzGIW&OzG>@dM<kV<
mmjUPr?lVK^Y@1o$Px^ZwXbAHYlUmNd32cFO0IO5~S7}@1wF7p_1MqTb`@ZcGZ2PY1+1L+lnGv#!mskFQ5i9S)Q7-{_hq3Z0lvtQe$7AKSkp7UX9~?;z`v
"""

REFLECTION_ALPHA = r"""
c-oazO>fgc5XDWCsFS8K3rS3*LgfPl2{~;zpmIVHMSLlWnp-a`$Jw|mZM<gJjmU{RSN;rtgMY+&?ZmE$i+Zv&Gw;pJo41C(FG3FsvS7rEC=Uj!Gna+e?jQ
>}q2Lim-MG@ph0{v==N@#YM68Io+$Jx{w;LiObO`&`Tt=30V)PGC56lH+1kctu{s!)nSd}>Q@c}x4j?Q^Jh+G=bz{hgEoN;FDrxjy(Qmi1~BN9l}&#J1T#
_*+6GNf~{sZ1wRd@tbGWh~>s!Oe0;gv5M-qjgBETH3e^O-5yerCO4DL|XMEF?tBCC6UtgiBeG0+81CJTPb`iH?yWr^svAzcDMFarfUDGfc3AYGUS0I2m!2
IM&~#u?PoB#pgs*;wwXm!HHN39nv@-F3YHdnPNXMj7;&K}livCmjp3k_^MeAu-{LkSD-o~Y>29^R)YbotyVZ59kvZ-$bZ#9e<E&}USEZa^6>OTIa(wULhz
OBiyRLbjm(LcLXAC0*X6B3}YQKTbZgtQxw2Ol4H>Yk}=^xr(pj)y#>cG*=l|-8g>-Th*vntA26L_>^X><<tR6X6aG3?)In;g`B2CX8SdiL2c_FHJ)(kC`>
qOZs2Nl_KGp_#-|-L!iThQACji#|m^;BhhbDOhlHZ>#st?tw^#?;EGaNJ5YDGU%vX#7^R4PK>K_pL3rP$LGuqe1{8v5Od`IwS&U%7^j@S4P#c*o_PHinda
(Q
"""

REFLECTION = r"""
c-oaz(QeZ)6ea80YPahe3~j@t!N`zS0ZM6^gamIDLsUc4w22p9tTc6lrPMBV8qp8nfj`>k;W%lNWhsKEs@M0NdwlM3;KUaT4+}C2h!;}M`q7}D{c{$Aha9
1}$;p+Yf&FU-x;I2bL|kv`*W|~N$Pn$r?sqOj%Q!ZAd*~3%84U=YtZ@9x+&Qr-@yX{0=omWs%;PL{DWlBCay6guz}iha#_*)rL4JmWNj1-^s;0*9g>zq@b
G~j$MJcLNIC6s^gJZUwPl%A1&v3X}5UZBX>_Ri3GQ?8dk9tH}_2gjm5L$C0rRx)AnWnYR!7Pqa_*PD?rcSJ|z${L;cGOALzO8_D-%h#UOcI0uA~&E@oO4y
p<%0T@xxreCrfLjdmD#avRhM9Cd#6Ntf-XWX6k9S@ub?q}Sw{CsVLomkYoW@zukf_o;|*(dyU2}^ml~9#9Yg2NMl!mZraLX8`=Ssx2_Q%H0S<@|`Fqwi#q
&}{ac2e|AuzK5Bvtzzbjs~ON6;>ss~?nFVWqckUqE-ujZp^<CaxqpJ6OM%zXhnG0(1e7O74r!pq_fBhc<>M+tQIk+0UR=BvNlW(_z1d<{fL|h$gOje3~>>
Q5%{`EwxPNb8q<D0J9iJw1mgS+L+Ba`kyc#zW%r7L~_q~V~i-YDK9~d+C|t^ytpgl+nLX~9}vgqfy;b{3%?)3b05uq;ggD^!L4CTYI^l={{WHg&t?
"""
